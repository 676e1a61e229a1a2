"""Which values of the chart arrive where in the pod of the operator."""

import json

import pytest

from tests.chart.chart_rendering import container_of, needs_helm, only, pod_of, render, template


@needs_helm
def test_security_contexts_may_be_changed_for_all_pods() -> None:
    objects = render(
        'podSecurityContext={"runAsUser":1234}', 'securityContext={"privileged":false}'
    )
    tester = only(objects, "Pod", "elastic-pytorch-operator-test")["spec"]
    for pod in (pod_of(objects)["spec"], tester):
        assert pod["securityContext"]["runAsUser"] == 1234
        assert pod["containers"][0]["securityContext"]["privileged"] is False


@needs_helm
def test_times_of_probes_the_strategy_and_the_budget_may_be_changed() -> None:
    objects = render(
        "probes.startup.failureThreshold=300",
        "probes.readiness.periodSeconds=2",
        "probes.liveness.timeoutSeconds=9",
        'strategy={"rollingUpdate":{"maxSurge":0}}',
        'podDisruptionBudget.maxUnavailable="50%"',
        "apiServer.maxWrites=20",
        'extraEnvFrom=[{"secretRef":{"name":"proxy"}}]',
    )
    container = container_of(objects)
    wanted = {"startupProbe": (1, 1, 300), "readinessProbe": (2, 5, 3), "livenessProbe": (10, 9, 3)}
    for probe, times in wanted.items():
        found = tuple(
            container[probe][name]
            for name in ("periodSeconds", "timeoutSeconds", "failureThreshold")
        )
        assert found == times
    assert only(objects, "Deployment")["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 0}}
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    assert "--max-writes=20" in container["args"]
    assert container["envFrom"] == [{"secretRef": {"name": "proxy"}}]
    assert "strategy" not in only(render(), "Deployment")["spec"], "Kubernetes' own"
    assert not [
        o for o in render("podDisruptionBudget.enabled=false") if o["kind"] == "PodDisruptionBudget"
    ]


@needs_helm
def test_keys_that_announce_an_end_or_report_a_fault_arrive_at_the_operator() -> None:
    objects = render(
        'announcedEnds={"sure":["a.io/a","a.io/b=c:NoExecute"]}', 'nodeFaults={"soft":["Up=False"]}'
    )
    arguments = [a for a in container_of(objects)["args"] if "-ends=" in a or "-faults=" in a]
    assert arguments == ["--sure-ends=a.io/a,a.io/b=c:NoExecute", "--soft-faults=Up=False"]


@needs_helm
def test_extras_arrive_in_the_pod_beside_the_charts_own() -> None:
    objects = render(
        'extraArgs=["--metrics-per-job"]',
        'extraEnv=[{"name":"HTTPS_PROXY","value":"http://proxy:3128"}]',
        'extraVolumes=[{"name":"ca","configMap":{"name":"ca"}}]',
        'extraVolumeMounts=[{"name":"ca","mountPath":"/etc/ssl/certs"}]',
        "revisionHistoryLimit=3",
    )
    pod, container = pod_of(objects)["spec"], container_of(objects)
    assert container["args"][-1] == "--metrics-per-job"
    assert container["env"][-1] == {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp", "ca"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["tmp", "ca"]
    assert only(objects, "Deployment")["spec"]["revisionHistoryLimit"] == 3


@needs_helm
def test_pods_may_be_spread_over_zones_without_naming_their_labels() -> None:
    zones = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
    }
    own = {**zones, "labelSelector": {"matchLabels": {"a": "b"}}}
    pod = pod_of(render(f"topologySpreadConstraints={json.dumps([zones, own])}"))
    selector = {
        "app.kubernetes.io/name": "elastic-pytorch-operator",
        "app.kubernetes.io/instance": "release",
    }
    assert pod["spec"]["topologySpreadConstraints"] == [
        {**zones, "labelSelector": {"matchLabels": selector}},
        own,
    ]


@needs_helm
def test_values_arrive_in_the_pod() -> None:
    objects = render(
        'image.pullPolicy="Never"',
        'logLevel="DEBUG"',
        'resources={"requests":{"cpu":"2"},"limits":null}',
        'nodeSelector={"pool":"system"}',
        'tolerations=[{"operator":"Exists"}]',
        'affinity={"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}',
        'podAnnotations={"note":"1"}',
        'podLabels={"team":"ml","app.kubernetes.io/name":"mine"}',
        'priorityClassName="system-cluster-critical"',
        'serviceAccount.annotations={"role":"r"}',
    )
    pod, container = pod_of(objects), container_of(objects)
    assert container["imagePullPolicy"] == "Never"
    assert "--log-level=DEBUG" in container["args"]
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "128Mi"}
    assert pod["spec"]["nodeSelector"] == {"pool": "system"}
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert pod["spec"]["affinity"] == {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
    }
    assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
    assert pod["metadata"]["annotations"] == {"note": "1"}
    assert only(objects, "ServiceAccount")["metadata"]["annotations"] == {"role": "r"}
    labels = pod["metadata"]["labels"]
    assert labels["team"] == "ml"
    assert labels["app.kubernetes.io/name"] == "elastic-pytorch-operator", (
        "the Service would not find the pod"
    )


@needs_helm
@pytest.mark.parametrize("times", ["3,3,1", "4,3,1.6"])
def test_times_of_the_election_that_cannot_be_kept_are_refused(times: str) -> None:
    lease, deadline, retry = times.split(",")
    result = template(
        f"leaderElection.leaseDurationSeconds={lease}",
        f"leaderElection.renewDeadlineSeconds={deadline}",
        f"leaderElection.retryPeriodSeconds={retry}",
    )
    assert result.returncode != 0
    assert "renewDeadlineSeconds must be less than leaseDurationSeconds" in result.stderr


@needs_helm
def test_slow_control_planes_get_longer_leases() -> None:
    names = ("leaseDurationSeconds=15", "renewDeadlineSeconds=10", "retryPeriodSeconds=2")
    arguments = container_of(render(*(f"leaderElection.{name}" for name in names)))["args"]
    assert {"--lease-duration=15", "--renew-deadline=10", "--retry-period=2"} <= set(arguments)
