"""When a field of the spec may change: by the schema, its text, and what pods are made from."""

import copy
from typing import Any

import yaml
from elastic_pytorch_operator.manifests.agent_injection import AgentImage
from elastic_pytorch_operator.manifests.stock_pods import store_pod
from elastic_pytorch_operator.manifests.worker_pod import volume_claim
from elastic_pytorch_operator.spec.job import Job, parse_job
from elastic_pytorch_operator.spec.schema.rules import OWN
from field_table import ALWAYS, NEVER, SUSPENDED, fields

from tests.faults import assert_none, fault_of
from tests.job_schema import SCHEMA
from tests.operator.builders import a_manifest, a_stock_pod, a_worker_pod
from tests.paths import ROOT

FIELDS = {
    path.removeprefix("spec."): (schema, rule)
    for path, schema, rule in fields("spec", SCHEMA["properties"]["spec"])
}
FULL = yaml.safe_load((ROOT / "tests" / "manifests" / "good" / "full.yaml").read_text())
SUSPENDED_SINCE = (
    "oldSelf.spec.suspend && (!has(oldSelf.status) || !has(oldSelf.status.conditions) || "
    "oldSelf.status.conditions.exists(c, c.type == 'Suspended' && c.status == 'True'))"
)
# A pod has these from its start, but the operator acts on the job's own:
# docs/reference/api-versions.md names them.
ALSO_IN_PODS = {
    "minReplicas",
    "maxReplicas",
    "failurePolicy.maxFailures",
    "scheduling.disruption",
    "scheduling.unitTopology",
    "resizePolicy.settleSeconds",
}

AGENT = AgentImage("agent")

OTHER_VALUES: dict[str, Any] = {
    "suspend": False,
    "managedBy": "example.com/other",
    "activeDeadlineSeconds": 7200,
    "progressDeadlineSeconds": 601,
    "saveDeadlineSeconds": 1801,
    "prepare": {"timeoutSeconds": 60},
    "ttlSecondsAfterFinished": 1,
    "replicas": 4,
    "minReplicas": 2,
    "maxReplicas": 12,
    "spares": 8,
    "unitReplicas": 4,
    "nprocPerNode": 4,
    "sharedMemorySize": "1Gi",
    "sharedVolumeClaims": [{"metadata": {"name": "data"}, "spec": {}}],
    "sharedVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"},
    "failurePolicy.maxFailures": 5,
    "failurePolicy.backoffLimit": 21,
    "failurePolicy.onPodLoss": "Replace",
    "failurePolicy.rules": [],
    "resizePolicy.settleSeconds": 9,
    "resizePolicy.minSecondsBetweenGrowths": 60,
    "resizePolicy.allowedReplicas": [4, 6, 8],
    "resizePolicy.checkpointWaitSeconds": 20,
    "resizePolicy.checkpointPath": "/data/other",
    "scheduling.disruption": "Allow",
    "scheduling.extraWorkers": {"nodeSelector": {"pool": "other"}},
    "scheduling.gangScheduler": None,
    "scheduling.rankTopologyKey": "example.com/block",
    "scheduling.scheduleTimeoutSeconds": 60,
    "scheduling.unitTopology": {"topologyKey": "topology.kubernetes.io/zone"},
    "rendezvous": {"backend": "operator", "port": 29700},
    "injectAgent": True,
    "cleanPodPolicy": "All",
    "template": {"spec": {"containers": [{"name": "pytorch", "image": "other"}]}},
    "templateRef": {"name": "gpu"},
}
KEPT = {"template": {**OTHER_VALUES["templateRef"], "uid": "uid"}}
TEMPLATES = {"uid": {"template": {"spec": {"nodeSelector": {"pool": "gpu"}}}}}
NOT_WITH_STOCK_TORCHRUN = (*OWN, "resizePolicy.checkpointWaitSeconds", "scheduling.unitTopology")


def rules_of(name: str) -> set[str]:
    """When the schema's rules, of the field, the spec and the job, let a field change."""
    schema = FIELDS[name][0]
    own = [
        rule["rule"]
        for rule in schema.get("x-kubernetes-validations", ())
        if "oldSelf" in rule["rule"]
    ]
    spec = [
        r
        for r in SCHEMA["properties"]["spec"]["x-kubernetes-validations"]
        if r.get("fieldPath") == f".{name}"
    ]
    root = [r for r in SCHEMA["x-kubernetes-validations"] if r.get("fieldPath") == f".spec.{name}"]
    same = (
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) "
        f"|| self.{name} == oldSelf.{name})"
    )
    found = {NEVER for rule in own if rule == "self == oldSelf"} | {
        NEVER for rule in spec if rule["rule"] == same
    }
    for rule in root:
        now, before = f"self.spec.{name}", f"oldSelf.spec.{name}"
        always_there = f"{now} == {before}"
        optional = f"has({now}) == has({before}) && (!has({now}) || {always_there})"
        told = rule["rule"]
        assert told == f"{always_there if 'default' in schema else optional} || {SUSPENDED_SINCE}"
        assert rule["message"].startswith(
            "field is immutable unless the condition Suspended is True: "
        )
        found.add(SUSPENDED)
    return found


def test_schema_enforces_what_it_says() -> None:
    def check(name: str) -> None:
        holder = next((path for path in _holders(name) if rules_of(path)), None)
        found = rules_of(holder) if holder else {ALWAYS}
        assert found == {FIELDS[name][1]}

    assert_none(f"{name}: {fault}" for name in FIELDS for fault in fault_of(check, name))


def test_no_other_rule_of_a_field_compares_it_with_what_it_was() -> None:
    rules = [
        (name, rule["rule"])
        for name in FIELDS
        for rule in FIELDS[name][0].get("x-kubernetes-validations", ())
    ]
    assert_none(
        f"{name}: {rule}" for name, rule in rules if "oldSelf" in rule and rule != "self == oldSelf"
    )


def test_table_has_another_value_for_each_field() -> None:
    known = {holder for name in FIELDS for holder in _holders(name) if holder in OTHER_VALUES}
    assert known == set(OTHER_VALUES)
    missing = [
        name
        for name in FIELDS
        if not set(_holders(name)) & known and not any(k.startswith(f"{name}.") for k in known)
    ]
    assert not missing


def test_what_pods_are_made_from_changes_only_while_there_are_none() -> None:
    full, stock = FULL, a_manifest(rendezvous={"backend": "c10d"}, minReplicas=1, maxReplicas=8)
    made_from_full, made_from_stock = made_from(full), made_from(stock)

    def check(name: str) -> None:
        differ = made_from_full != made_from(changed(full, name))
        if name not in NOT_WITH_STOCK_TORCHRUN:
            differ |= made_from_stock != made_from(changed(stock, name))
        if name in ALSO_IN_PODS:
            assert differ
            assert FIELDS[name][1] == ALWAYS
        else:
            assert (FIELDS[name][1] != ALWAYS) is (differ or name == "managedBy")

    assert_none(f"{name}: {fault}" for name in OTHER_VALUES for fault in fault_of(check, name))


def test_page_names_the_fields_that_pods_carry_as_well() -> None:
    text = (ROOT / "docs" / "reference" / "api-versions.md").read_text()
    carry = text[text.index("Pods also carry") :].partition("\n\n")[0]
    assert {name for name in FIELDS if f"`{name}`" in carry} == ALSO_IN_PODS


def made_from(manifest: dict[str, Any]) -> list[Any]:
    """What a job's pods and claims are, with a command of the user's as well."""
    job = parse_job(manifest, templates=TEMPLATES)
    own = copy.deepcopy(manifest)
    for container in own["spec"]["template"]["spec"]["containers"]:
        container["command"] = ["torchrun"]
    claims = [volume_claim(job, claim) for claim in job.claims]
    return [
        *(pod for each in (job, parse_job(own, templates=TEMPLATES)) for pod in pods_of(each)),
        *claims,
    ]


def pods_of(job: Job) -> list[Any]:
    return (
        [a_stock_pod(job), store_pod(job, "x", 1)]
        if job.stock
        else [a_worker_pod(job, 0, (), AGENT)]
    )


def changed(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """A job with another value of one field, and the rest as it was."""
    other = copy.deepcopy(manifest)
    *holders, last = name.split(".")
    place = other["spec"]
    for holder in holders:
        place = place.setdefault(holder, {})
    place[last] = OTHER_VALUES[name]
    return {**other, "status": KEPT} if name == "templateRef" else other


def _holders(name: str) -> list[str]:
    """A field and those that hold it, the innermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]).removesuffix("[]") for count in range(len(parts), 0, -1)]
