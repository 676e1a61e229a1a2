import json

import pytest
from elastic_pytorch_operator.api.gang_schedulers import GANG_SCHEDULERS

from tests.chart.chart_rendering import Object, needs_helm, only, pod_of, render, template

JOBS = {
    ("elasticpytorch.dev", "elasticpytorchjobs"): ["delete", "list", "watch"],
    ("elasticpytorch.dev", "elasticpytorchjobs/status"): ["patch"],
    ("elasticpytorch.dev", "elasticpytorchjobs/finalizers"): ["update"],
    ("", "pods"): ["create", "delete", "list", "watch"],
    ("", "services"): ["create", "get"],
    ("", "persistentvolumeclaims"): ["create", "get"],
    ("apps", "controllerrevisions"): ["create", "get"],
    ("events.k8s.io", "events"): ["create"],
}
EVERYWHERE = {
    ("", "nodes"): ["list", "watch"],
    ("elasticpytorch.dev", "clusterelasticpytorchjobtemplates"): ["get"],
    ("authentication.k8s.io", "tokenreviews"): ["create"],
    ("authorization.k8s.io", "subjectaccessreviews"): ["create"],
}
SLICES = ["elastic-pytorch-operator-ipv4", "elastic-pytorch-operator-ipv6"]
OWN_NAMESPACE = [
    ("leases", ["get", "update"], ["elastic-pytorch-operator"]),
    ("secrets", ["get", "update"], ["elastic-pytorch-operator-tls"]),
    ("endpointslices", ["get", "update"], SLICES),
    ("endpointslices/restricted", ["create"], SLICES),
]


def granted(role: Object) -> dict[tuple[str, str], list[str]]:
    return {
        (group, resource): sorted(rule["verbs"])
        for rule in role["rules"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources") or rule["nonResourceURLs"]
    }


@needs_helm
def test_operator_of_all_namespaces_may_do_exactly_what_it_does() -> None:
    objects = render()
    assert granted(only(objects, "ClusterRole")) == JOBS | EVERYWHERE
    own = only(objects, "Role", "elastic-pytorch-operator-leader")
    assert own["metadata"]["namespace"] == "the-namespace"
    assert [
        (*rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in own["rules"]
    ] == OWN_NAMESPACE
    assert [o["metadata"]["name"] for o in objects if o["kind"] == "Role"] == [
        own["metadata"]["name"]
    ]


@needs_helm
@pytest.mark.parametrize("namespaces", ["[]", '["a"]'])
def test_operator_may_read_the_keys_of_tokens_by_the_role_of_kubernetes(namespaces: str) -> None:
    binding = only(
        render(f"watchNamespaces={namespaces}"),
        "ClusterRoleBinding",
        "elastic-pytorch-operator-token-keys",
    )
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
        "ClusterRole",
        "system:service-account-issuer-discovery",
    )


@needs_helm
def test_operator_that_asks_kueue_for_quota_may_write_workloads_and_read_what_they_refer_to() -> (
    None
):
    objects = render("kueue.enabled=true")
    extra = {
        ("kueue.x-k8s.io", "workloads"): ["create", "delete", "list", "patch", "watch"],
        ("kueue.x-k8s.io", "workloads/status"): ["patch"],
        ("kueue.x-k8s.io", "resourceflavors"): ["get"],
        ("kueue.x-k8s.io", "workloadpriorityclasses"): ["get"],
        ("scheduling.k8s.io", "priorityclasses"): ["list"],
    }
    assert granted(only(objects, "ClusterRole")) == JOBS | EVERYWHERE | extra
    assert "--kueue" in pod_of(objects)["spec"]["containers"][0]["args"]
    assert "--kueue" not in pod_of(render())["spec"]["containers"][0]["args"]


@needs_helm
def test_operator_of_some_namespaces_may_do_nothing_in_others() -> None:
    objects = render('watchNamespaces=["a","b"]')
    assert granted(only(objects, "ClusterRole")) == EVERYWHERE
    roles = {
        o["metadata"]["namespace"]: granted(o)
        for o in objects
        if o["kind"] == "Role" and "elasticpytorchjobs" in str(o)
    }
    assert roles == {"a": JOBS, "b": JOBS}
    bindings = [
        o
        for o in objects
        if o["kind"] == "RoleBinding" and o["metadata"]["namespace"] in ("a", "b")
    ]
    assert [binding["roleRef"]["name"] for binding in bindings] == ["elastic-pytorch-operator"] * 2


@needs_helm
@pytest.mark.parametrize("namespaces", ["[]", '["a"]'])
def test_operator_may_manage_the_pod_groups_of_the_named_schedulers_only(namespaces: str) -> None:
    for schedulers in ([], ["Coscheduling"], list(GANG_SCHEDULERS)):
        objects = render(
            f"watchNamespaces={namespaces}", f"gangSchedulers={json.dumps(schedulers)}"
        )
        found = {
            group: sorted(rule["verbs"])
            for role in objects
            if role["kind"].endswith("Role")
            for rule in role["rules"]
            if rule.get("resources") == ["podgroups"]
            for group in rule["apiGroups"]
        }
        groups = {GANG_SCHEDULERS[name].api_version.partition("/")[0] for name in schedulers}
        assert found == {group: ["create", "delete", "get", "update"] for group in groups}


@needs_helm
def test_no_role_has_a_wildcard_or_reads_all_secrets() -> None:
    for role in (
        o
        for settings in ((), ('watchNamespaces=["a"]',))
        for o in render(*settings)
        if o["kind"].endswith("Role")
    ):
        for rule in role["rules"]:
            resources = rule.get("resources") or rule["nonResourceURLs"]
            assert not [
                name
                for name in (*rule.get("apiGroups", ()), *resources, *rule["verbs"])
                if "*" in name
            ]
            if "secrets" in resources:
                assert role["kind"] == "Role", "of its own namespace only"
                assert rule["resourceNames"] == ["elastic-pytorch-operator-tls"], "and only its own"


@needs_helm
def test_certificate_that_others_keep_is_read_by_all_who_show_or_check_it_and_written_by_none() -> (
    None
):
    objects = render('tls.existingSecret="corp-tls"', "metrics.serviceMonitor.enabled=true")
    assert not [o for o in objects if o["kind"] == "Secret"]
    assert "--existing-secret=corp-tls" in pod_of(objects)["spec"]["containers"][0]["args"]
    rules = only(objects, "Role", "elastic-pytorch-operator-leader")["rules"]
    assert [
        (rule["resourceNames"], rule["verbs"]) for rule in rules if rule["resources"] == ["secrets"]
    ] == [(["corp-tls"], ["get"])]
    [endpoint] = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": "corp-tls", "key": "ca.crt"}}
    [volume] = only(objects, "Pod", "elastic-pytorch-operator-test")["spec"]["volumes"]
    assert volume["projected"]["sources"][1]["secret"]["name"] == "corp-tls"


@needs_helm
@pytest.mark.parametrize("namespaces", ["[]", '["a"]'])
def test_roles_are_bound_to_the_account_that_the_operator_runs_as(namespaces: str) -> None:
    for settings, account in (
        ((), "elastic-pytorch-operator"),
        (('serviceAccount.name="other"',), "other"),
        (('serviceAccount={"create":false,"name":"mine"}',), "mine"),
    ):
        objects = render(f"watchNamespaces={namespaces}", *settings)
        for binding in (o for o in objects if o["kind"].endswith("RoleBinding")):
            subject = {"kind": "ServiceAccount", "name": account, "namespace": "the-namespace"}
            assert binding["subjects"] == [subject]
        assert pod_of(objects)["spec"]["serviceAccountName"] == account


@needs_helm
def test_account_that_is_not_made_must_be_named() -> None:
    result = template("serviceAccount.create=false")
    assert result.returncode != 0
    assert "say in serviceAccount.name which ServiceAccount to use" in result.stderr


@needs_helm
@pytest.mark.parametrize("namespaces", ["[]", '["a"]'])
def test_roles_may_be_left_to_others(namespaces: str) -> None:
    kinds = {o["kind"] for o in render("rbac.create=false", f"watchNamespaces={namespaces}")}
    assert not [kind for kind in kinds if "Role" in kind]


@needs_helm
def test_roles_of_users_are_aggregated_where_the_values_say() -> None:
    def aggregated(role: str, *settings: str) -> set[str]:
        labels = only(render(*settings), "ClusterRole", f"elastic-pytorch-operator-{role}")[
            "metadata"
        ]["labels"]
        return {
            label
            for label, value in labels.items()
            if label.startswith("rbac.") and value == "true"
        }

    kubernetes = "rbac.authorization.k8s.io/aggregate-to-"
    kubeflow = "rbac.authorization.kubeflow.org/aggregate-to-kubeflow-"
    for role, names in (("view", ("view", "edit", "admin")), ("edit", ("edit", "admin"))):
        assert aggregated(role) == {kubernetes + name for name in names}
        assert aggregated(role, "rbac.aggregateClusterRoles=false") == set()
        both = {prefix + name for name in names for prefix in (kubernetes, kubeflow)}
        assert aggregated(role, "rbac.kubeflowRoles=true") == both


@needs_helm
@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"create", "update", "patch", "delete", "deletecollection"}),
    ],
)
def test_users_of_a_namespace_may_use_jobs(role: str, verbs: set[str]) -> None:
    found = only(render(), "ClusterRole", f"elastic-pytorch-operator-{role}")
    assert set(found["rules"][0]["verbs"]) == verbs
    read = {resource.partition("/")[0] for rule in found["rules"] for resource in rule["resources"]}
    assert read == {"elasticpytorchjobs"}, "only the operator reads templates"
    assert not [
        r
        for rule in found["rules"]
        for r in rule["resources"]
        if "status" in r and "patch" in rule["verbs"]
    ]
