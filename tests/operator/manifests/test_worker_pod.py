from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import COSCHEDULING
from elastic_pytorch_operator.manifests.pod_group import pod_group
from elastic_pytorch_operator.manifests.stock_pods import store_pod
from elastic_pytorch_operator.manifests.worker_pod import (
    UnbuildableError,
    headless_service,
    volume_claim,
)
from elastic_pytorch_operator.manifests.workload import workload
from elastic_pytorch_operator.model.actions import CreateWorkload
from elastic_pytorch_operator.planning.completion import decide_ending
from elastic_pytorch_operator.planning.failed_writes import Answers
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.volumes import ClaimTemplate

from tests.operator.builders import (
    a_job,
    a_manifest,
    a_queued_job,
    a_stock_pod,
    a_target,
    a_worker_pod,
    observed,
)

TEMPLATE = a_manifest()["spec"]["template"]


def build(job: Job | None = None) -> dict[str, Any]:
    return a_worker_pod(job or a_job(), 2)


def with_container(**fields: Any) -> Job:
    return a_job(
        template={"spec": {"containers": [{**TEMPLATE["spec"]["containers"][0], **fields}]}}
    )


def env(pod: dict[str, Any]) -> dict[str, Any]:
    return {
        v["name"]: v.get("value", v.get("valueFrom")) for v in pod["spec"]["containers"][0]["env"]
    }


def test_name_host_and_owner() -> None:
    pod = build()
    assert pod["metadata"]["name"] == "lm-worker-2-x7k2p"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("lm-worker-2", "lm")
    owner = pod["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "ElasticPyTorchJob",
        "lm",
        "uid-lm",
        True,
    )


def test_agent_is_the_command_unless_the_user_has_one() -> None:
    assert build()["spec"]["containers"][0]["command"] == ["python3", "-m", "elastic_pytorch.agent"]
    own = build(with_container(command=["torchrun", "train.py"]))
    assert own["spec"]["containers"][0]["command"] == ["torchrun", "train.py"]
    assert env(own)["PET_RDZV_BACKEND"] == "elastic-pytorch"
    assert "PET_RDZV_BACKEND" not in env(build())


SAFE, KARPENTER = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"


@pytest.mark.parametrize(
    ("job", "annotations"),
    [
        ({}, {SAFE: "true"}),
        ({"minimum": None, "maximum": None}, {SAFE: "false", KARPENTER: "true"}),
        ({"scheduling": {"disruption": "Forbid"}}, {SAFE: "false", KARPENTER: "true"}),
        ({"minimum": None, "maximum": None, "scheduling": {"disruption": "Allow"}}, {SAFE: "true"}),
    ],
)
def test_autoscalers_may_take_away_workers_of_an_elastic_job_only(
    job: dict[str, Any], annotations: dict[str, str]
) -> None:
    found = build(a_job(**job))["metadata"]["annotations"]
    assert {
        name: value for name, value in found.items() if name in (SAFE, KARPENTER)
    } == annotations


def test_annotations_of_the_template_say_otherwise() -> None:
    template = {"metadata": {"annotations": {SAFE: "false"}}, "spec": TEMPLATE["spec"]}
    assert build(a_job(template=template))["metadata"]["annotations"][SAFE] == "false"


def test_environment_of_the_agent() -> None:
    variables = env(build(a_job(nprocPerNode=2, rendezvous={"port": 30000})))
    assert variables["ELASTIC_PYTORCH_OPERATOR_URL"] == "http://operator:8443"
    assert variables["ELASTIC_PYTORCH_WORKER"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert variables["ELASTIC_PYTORCH_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert variables["ELASTIC_PYTORCH_GRACE_SECONDS"] == "30"
    assert variables["PET_NPROC_PER_NODE"] == "2"
    assert variables["ELASTIC_PYTORCH_STORE_PORT"] == "30000"


def test_agent_is_told_of_a_folder_to_watch_if_there_is_one() -> None:
    name = "ELASTIC_PYTORCH_CHECKPOINT_PATH"
    assert name not in env(build())
    assert (
        env(build(a_job(resizePolicy={"checkpointPath": "/checkpoints"})))[name] == "/checkpoints"
    )


def test_scripts_read_the_failures_that_the_job_may_have() -> None:
    assert env(build(a_job(failurePolicy={"maxFailures": 2})))["PET_MAX_RESTARTS"] == "2"


def test_torchrun_of_the_users_never_ends_by_its_own_count() -> None:
    container = {**TEMPLATE["spec"]["containers"][0], "command": ["torchrun", "train.py"]}
    job = a_job(template={"spec": {"containers": [container]}})
    variables = [v["name"] for v in build(job)["spec"]["containers"][0]["env"]]
    assert variables.count("PET_MAX_RESTARTS") == 1
    assert env(build(job))["PET_MAX_RESTARTS"] == "1000000"


def test_users_own_environment_wins() -> None:
    own = [{"name": "PET_NPROC_PER_NODE", "value": "auto"}, {"name": "LR", "value": "0.1"}]
    variables = [v["name"] for v in build(with_container(env=own))["spec"]["containers"][0]["env"]]
    assert variables.count("PET_NPROC_PER_NODE") == 1
    assert env(build(with_container(env=own)))["PET_NPROC_PER_NODE"] == "auto"


OF_A_GROUP = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "NODE_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
)


@pytest.mark.parametrize("command", [[], ["torchrun", "train.py"]])
def test_variables_of_another_launcher_never_reach_a_worker_but_that_of_stock_torchrun(
    command: list[str],
) -> None:
    names = (*OF_A_GROUP, "PET_TEE", "MY_RANK", "RANKS")
    fields = {"env": [{"name": name, "value": "5"} for name in names], "command": command}
    assert {name for name in names if name in env(build(with_container(**fields)))} == {
        "PET_TEE",
        "MY_RANK",
        "RANKS",
    }
    container = {**TEMPLATE["spec"]["containers"][0], **fields}
    stock = a_job(template={"spec": {"containers": [container]}}, rendezvous={"backend": "c10d"})
    assert set(names) <= env(a_stock_pod(stock)).keys(), "it is the user's launcher"


def test_token_is_for_the_operator_only() -> None:
    pod = build()
    source = pod["spec"]["volumes"][-1]["projected"]["sources"][0]["serviceAccountToken"]
    assert source["audience"] == "elastic-pytorch-operator"
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_lost_nodes_are_tolerated_for_seconds_unless_the_template_says_otherwise() -> None:
    def seconds(job: Job) -> dict[str, int]:
        return {t["key"]: t["tolerationSeconds"] for t in build(job)["spec"]["tolerations"]}

    unreachable = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 60,
    }
    own = a_job(template={"spec": {**TEMPLATE["spec"], "tolerations": [unreachable]}})
    assert seconds(a_job()) == {
        "node.kubernetes.io/not-ready": 10,
        "node.kubernetes.io/unreachable": 10,
    }
    assert seconds(own) == {
        "node.kubernetes.io/not-ready": 10,
        "node.kubernetes.io/unreachable": 60,
    }


BOTH = ["not-ready", "unreachable"]


@pytest.mark.parametrize(
    ("toleration", "added"),
    [
        ({"operator": "Exists"}, []),
        ({"operator": "Exists", "effect": "NoExecute"}, []),
        ({"operator": "Exists", "effect": "NoSchedule"}, BOTH),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, ["unreachable"]),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, BOTH),
    ],
)
def test_toleration_of_another_effect_does_not_say_when_a_pod_leaves_a_lost_node(
    toleration: dict[str, str], added: list[str]
) -> None:
    job = a_job(template={"spec": {**TEMPLATE["spec"], "tolerations": [toleration]}})
    found = build(job)["spec"]["tolerations"][1:]
    assert [each["key"].removeprefix("node.kubernetes.io/") for each in found] == added


def test_service_is_headless_and_selects_the_workers() -> None:
    service = headless_service(a_job(rendezvous={"port": 30000}))
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["ports"][0]["port"] == 30000
    assert service["spec"]["selector"].items() <= build()["metadata"]["labels"].items()


def test_nodes_to_avoid_are_left_out_of_every_alternative_of_the_template() -> None:
    template: dict[str, Any] = {"spec": {"containers": [{"name": "pytorch", "image": "torch"}]}}
    fields = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("a", "b")
    ]
    pod = a_worker_pod(a_job(template=template), 0, ["a", "b"])
    assert terms_of(pod) == [{"matchFields": fields}]
    assert pod["metadata"]["annotations"]["elasticpytorch.dev/avoids-nodes"] == "a,b"
    zones = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        for zone in ("x", "y")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    template["spec"]["affinity"] = {"nodeAffinity": required, "podAffinity": {"kept": True}}
    pod = a_worker_pod(a_job(template=template), 0, ["a", "b"])
    assert terms_of(pod) == [{**zone, "matchFields": fields} for zone in zones]
    assert pod["spec"]["affinity"]["podAffinity"] == {"kept": True}


def test_nodes_to_take_only_if_no_other_fits_are_disliked_beside_what_the_template_likes() -> None:
    near = {
        "weight": 5,
        "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]}}
    job = a_job(template={"spec": {**TEMPLATE["spec"], "affinity": affinity}})
    pod = a_worker_pod(job, 0, unwanted=("a", "b"))
    fields = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("a", "b")
    ]
    dislike = {"weight": 100, "preference": {"matchFields": fields}}
    expected = {"preferredDuringSchedulingIgnoredDuringExecution": [near, dislike]}
    assert pod["spec"]["affinity"] == {"nodeAffinity": expected}
    assert pod["metadata"]["annotations"]["elasticpytorch.dev/prefers-other-nodes-than"] == "a,b"


@pytest.mark.parametrize(
    ("containers", "name"),
    [
        ([{"name": "trainer"}], "trainer"),
        ([{"name": "proxy"}, {"name": "pytorch"}], "pytorch"),
    ],
)
def test_pod_tells_which_container_trains(containers: list[dict[str, Any]], name: str) -> None:
    pod = build(
        a_job(
            template={
                "metadata": {"annotations": {"team": "ml"}},
                "spec": {"containers": containers},
            }
        )
    )
    assert (
        pod["metadata"]["annotations"].items()
        >= {"team": "ml", "elasticpytorch.dev/training-container": name}.items()
    )
    assert "command" in next(c for c in pod["spec"]["containers"] if c["name"] == name)


@pytest.mark.parametrize(
    ("network", "policy"),
    [
        ({}, None),
        ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "None"}, "None"),
        ({"dnsPolicy": "Default"}, "Default"),
    ],
)
@pytest.mark.parametrize("backend", ["operator", "c10d"])
def test_pod_on_the_hosts_network_resolves_services(
    backend: str, network: dict[str, Any], policy: str | None
) -> None:
    job = a_job(template={"spec": {**TEMPLATE["spec"], **network}}, rendezvous={"backend": backend})
    pod = a_stock_pod(job) if job.stock else build(job)
    assert pod["spec"].get("dnsPolicy") == policy


def test_labels_are_the_users_where_nothing_selects_by_them() -> None:
    own = {"app.kubernetes.io/name": "lm", "app.kubernetes.io/managed-by": "Helm", "team": "ml"}
    labels = build(a_job(template={"metadata": {"labels": own}, **TEMPLATE}))["metadata"]["labels"]
    assert labels == {
        **own,
        "elasticpytorch.dev/job-name": "lm",
        "elasticpytorch.dev/worker-index": "2",
        "elasticpytorch.dev/role": "worker",
    }
    labels = build()["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "elastic-pytorch-job"
    assert labels["app.kubernetes.io/managed-by"] == "elastic-pytorch-operator"


def terms_of(pod: dict[str, Any]) -> Any:
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    return required["nodeSelectorTerms"]


def test_spare_prefers_a_node_without_another_worker_of_its_job() -> None:
    own = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
    affinity = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]},
        "nodeAffinity": {},
    }
    template = {
        "spec": {"containers": [{"name": "pytorch", "image": "torch"}], "affinity": affinity}
    }
    for job, first in ((a_job(), []), (a_job(template=template), [own])):
        pod = a_worker_pod(job, apart=True)
        preferred = pod["spec"]["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        *others, alone = preferred
        assert others == first
        assert (alone["weight"], alone["podAffinityTerm"]["topologyKey"]) == (
            100,
            "kubernetes.io/hostname",
        )
        selector = alone["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert selector.items() <= pod["metadata"]["labels"].items()
        assert selector["elasticpytorch.dev/job-name"] == "lm"
    assert "affinity" not in a_worker_pod(a_job())["spec"]


BROKEN = replace(
    a_queued_job(), template={"spec": {"containers": 7}}, claims=(ClaimTemplate("data", 7),)
)


@pytest.mark.parametrize(
    ("build", "kind", "cause"),
    [
        (a_worker_pod, "Pod", "spec.template cannot make a pod"),
        (a_stock_pod, "Pod", "spec.template cannot make a pod"),
        (lambda job: store_pod(job, "x", 1), "Pod", "spec.template cannot make a pod"),
        (lambda job: pod_group(job, COSCHEDULING), "PodGroup", "spec.template cannot make a pod"),
        (
            lambda job: workload(job, CreateWorkload(0, 2), {}, {}),
            "Workload",
            "spec.template cannot make a pod",
        ),
        (
            lambda job: volume_claim(job, job.claims[0]),
            "PersistentVolumeClaim",
            "spec.sharedVolumeClaims cannot make a claim",
        ),
    ],
)
def test_failure_names_what_is_built_and_the_field_that_it_is_built_of(
    build: Callable[[Job], Any], kind: str, cause: str
) -> None:
    with pytest.raises(
        UnbuildableError, match=f"^{kind}: the operator cannot build it: "
    ) as failure:
        build(BROKEN)
    memory = Memory(answers=Answers(invalid=str(failure.value)))
    ending, _ = decide_ending(BROKEN, a_target(BROKEN), observed(), [], memory, NONE_FAILED)
    assert ending is not None
    assert (ending.complete, ending.reason) == (False, "InvalidTemplate")
    assert ending.message == f"{cause}: {failure.value}"
