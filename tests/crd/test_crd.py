"""The CRD as the contract has it, read as YAML: no cluster is needed."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import GANG_SCHEDULERS
from elastic_pytorch_operator.monitoring.job_counts import ROUND_REASONS
from elastic_pytorch_operator.planning.reporting.goodput import Activity
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.scheduling import UnitTopology

from tests.faults import assert_none
from tests.job_schema import CRD, CRD_FILE, SCHEMA, VERSION
from tests.operator.builders import a_manifest


def properties(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property below a schema, with its path as `kubectl explain` writes it."""
    for name, child in schema.get("properties", {}).items():
        child_path = f"{path}.{name}".lstrip(".")
        yield child_path, child
        yield from properties(child, child_path)
    for key in ("items", "additionalProperties"):
        if isinstance(child := schema.get(key), dict):
            yield f"{path}[]", child
            yield from properties(child, f"{path}[]")


PROPERTIES = dict(properties(SCHEMA))
INVALID = "FieldValueInvalid"  # the reason of a rule that names none


def bounds(path: str) -> tuple[Any, Any, Any]:
    schema = PROPERTIES[path]
    return schema.get("minimum"), schema.get("maximum"), schema.get("default")


def rules(path: str) -> list[str]:
    return [rule["rule"] for rule in PROPERTIES[path].get("x-kubernetes-validations", [])]


def test_names_are_those_of_the_contract() -> None:
    assert CRD["metadata"]["name"] == "elasticpytorchjobs.elasticpytorch.dev"
    assert CRD["spec"]["group"] == "elasticpytorch.dev"
    assert CRD["spec"]["scope"] == "Namespaced"
    assert CRD["spec"]["names"] == {
        "kind": "ElasticPyTorchJob",
        "listKind": "ElasticPyTorchJobList",
        "plural": "elasticpytorchjobs",
        "singular": "elasticpytorchjob",
        "shortNames": ["epj"],
        "categories": ["all"],
    }
    assert (VERSION["name"], VERSION["served"], VERSION["storage"]) == ("v1alpha1", True, True)


def test_crd_fits_the_annotation_of_kubectl_apply() -> None:
    assert CRD_FILE.stat().st_size < 80_000


def test_every_property_is_described() -> None:
    # The API server describes metadata itself and allows no description there. An item of a list of
    # numbers or words, or a value of a map, is what the list or the map says.
    paths = [path for path in PROPERTIES if path.partition(".")[0] != "metadata"]
    paths = [
        path for path in paths if not path.endswith("[]") or PROPERTIES[path]["type"] == "object"
    ]
    bare = [path for path in paths if not PROPERTIES[path].get("description")]
    assert not bare
    assert SCHEMA["description"]


def test_descriptions_are_sentences() -> None:
    described = {
        path: schema["description"]
        for path, schema in PROPERTIES.items()
        if schema.get("description")
    }
    assert_none(
        f"{path}: {text}"
        for path, text in described.items()
        if not (text[0].isupper() or text[0] == "`") or not text.endswith(".") or "  " in text
    )


def test_numbers_have_the_bounds_and_defaults_of_the_contract() -> None:
    contract = [
        ("spec.replicas", 1, 4096, None),
        ("spec.minReplicas", 1, 4096, None),
        ("spec.maxReplicas", 1, 4096, None),
        ("spec.spares", 0, 64, 0),
        ("spec.unitReplicas", 1, 512, 1),
        ("spec.ttlSecondsAfterFinished", 0, 2**31 - 1, None),
        ("spec.failurePolicy.maxFailures", 0, 1000, 3),
        ("spec.failurePolicy.backoffLimit", 0, 2**31 - 1, None),
        ("spec.resizePolicy.settleSeconds", 0, 600, 1),
        ("spec.resizePolicy.minSecondsBetweenGrowths", 0, 86400, 0),
        ("spec.resizePolicy.checkpointWaitSeconds", 0, 3600, 0),
        ("spec.scheduling.scheduleTimeoutSeconds", 1, 2**31 - 1, None),
        ("spec.rendezvous.port", 1024, 65435, 29500),
    ]
    # A default that the API server writes would win over a template's value: descriptions tell
    # those of the operator.
    assert_none(
        f"{path}: {bounds(path)}, {PROPERTIES[path]['description']}"
        for path, minimum, maximum, default in contract
        if PROPERTIES[path]["type"] != "integer"
        or bounds(path) != (minimum, maximum, None)
        or (default is not None and f"Default: {default}." not in PROPERTIES[path]["description"])
    )


def test_words_have_the_defaults_of_the_contract() -> None:
    assert PROPERTIES["spec.rendezvous.backend"]["enum"] == ["operator", "c10d", "etcd-v2"]
    assert "default" not in PROPERTIES["spec.rendezvous.backend"], (
        "a job without one has its template's"
    )
    assert PROPERTIES["spec.cleanPodPolicy"]["enum"] == ["None", "Running", "All"]
    assert "default" not in PROPERTIES["spec.cleanPodPolicy"], (
        "a job without one has the operator's"
    )
    assert PROPERTIES["spec.nprocPerNode"]["x-kubernetes-int-or-string"] is True
    assert "default" not in PROPERTIES["spec.nprocPerNode"]
    assert "default" not in PROPERTIES["spec.managedBy"]
    assert PROPERTIES["spec.scheduling.gangScheduler"]["enum"] == list(GANG_SCHEDULERS)
    found = PROPERTIES["spec.failurePolicy.rules[].action"]["enum"]
    assert found == ["Count", "Ignore", "FailJob", "RestartGroup"]
    assert PROPERTIES["spec.sharedVolumeClaimRetentionPolicy.whenDeleted"]["default"] == "Retain"


def test_operator_has_the_defaults_that_the_api_server_does_not_write() -> None:
    job = parse_job(a_manifest(minimum=None, maximum=None, prepare={}))
    assert (job.spares, job.unit_replicas, job.max_failures) == (0, 1, 3)
    assert (job.on_pod_loss, job.inject_agent) == ("Replace", True)
    assert (job.settle_seconds, job.growth_seconds, job.checkpoint_wait_seconds) == (1.0, 0.0, 0.0)
    assert (job.backend, job.store_port, job.prepare_seconds) == ("operator", 29500, 1800)
    unit = {"unitReplicas": 2, "scheduling": {"unitTopology": {"topologyKey": "zone"}}}
    job = parse_job(a_manifest(replicas=2, minimum=2, maximum=4, **unit))
    assert job.scheduling.unit_topology == UnitTopology("zone", required=True)


def test_waiting_for_a_checkpoint_needs_a_folder() -> None:
    [rule] = rules("spec.resizePolicy")
    assert "has(self.checkpointPath)" in rule
    assert "default" not in PROPERTIES["spec.resizePolicy.checkpointPath"]


def test_defaults_inside_an_object_apply_without_it() -> None:
    objects = ("failurePolicy", "resizePolicy", "scheduling", "rendezvous")
    assert_none(name for name in objects if PROPERTIES[f"spec.{name}"].get("default") != {})


def test_list_says_how_it_merges_and_how_long_it_may_get() -> None:
    lists = {path: schema for path, schema in PROPERTIES.items() if schema.get("type") == "array"}
    assert not [
        path
        for path, schema in lists.items()
        if "x-kubernetes-list-type" not in schema or "maxItems" not in schema
    ]


def test_time_has_its_unit_in_its_name() -> None:
    times = [
        path
        for path, schema in PROPERTIES.items()
        if ", in seconds," in schema.get("description", "")
    ]
    assert times
    assert not [path for path in times if "seconds" not in path.lower()]
    assert not [
        path
        for path, schema in PROPERTIES.items()
        if ", in milliseconds," in schema.get("description", "")
    ]


def all_rules() -> list[dict[str, Any]]:
    schemas = (SCHEMA, *PROPERTIES.values())
    return [rule for schema in schemas for rule in schema.get("x-kubernetes-validations", [])]


def test_every_rule_says_what_is_wrong() -> None:
    found = all_rules()
    assert found
    assert all(rule.get("message") or rule["messageExpression"] for rule in found)
    assert INVALID not in {rule.get("reason") for rule in found}, "it is the API's default"


def test_refusal_of_one_value_is_not_called_forbidden() -> None:
    forbidden = [
        rule["message"] for rule in all_rules() if rule.get("reason") == "FieldValueForbidden"
    ]
    assert all(message.startswith(("may not be set", "must not contain")) for message in forbidden)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_what_the_operator_writes_on_its_pods_is_refused_in_the_template(field: str) -> None:
    path = f"spec.template.metadata.{field}"
    [rule] = rules(path)
    assert "'elasticpytorch.dev/'" in rule
    assert "app.kubernetes.io/" not in rule, "those are the user's"
    assert PROPERTIES[path]["maxProperties"], (
        "the API server estimates what a rule over all keys may cost"
    )


def test_template_keeps_what_the_schema_does_not_know() -> None:
    for path in ("", ".metadata", ".spec", ".spec.containers[]"):
        assert PROPERTIES[f"spec.template{path}"]["x-kubernetes-preserve-unknown-fields"] is True
    elsewhere = [
        path
        for path, schema in PROPERTIES.items()
        if schema.get("x-kubernetes-preserve-unknown-fields")
        and not path.startswith("spec.template")
    ]
    assert elsewhere == [
        "spec.sharedVolumeClaims[].spec",
        "status.lastValidSpec",
        "status.operatorState",
    ]


STATUS = {
    "status": "observedGeneration conditions state replicas readyReplicas readySpares selector "
    "startTime completionTime round worldSize failures totalFailures groupRestarts progress "
    "history goodput stragglers refusals template lastValidSpec interruptions rootCause workers "
    "unlistedWorkers operatorState",
    "status.progress": "summary step total loss metrics stepsPerSecond checkpointStep",
    "status.history[]": "time round replicas cause seconds phaseSeconds stepsLost count loss "
    "stepsPerSecond",
    "status.goodput": "activity time seconds processSeconds",
    "status.rootCause": "worker node rank pid time exitCode signal message",
    "status.stragglers[]": "rank worker localRank node slowdown medianSeconds",
    "status.template": "name uid",
    "status.workers[]": "name index rank node processes state stateSince",
}


def test_status_holds_what_the_operator_writes() -> None:
    assert {path: set(PROPERTIES[path]["properties"]) for path in STATUS} == {
        path: set(fields.split()) for path, fields in STATUS.items()
    }
    assert PROPERTIES["status.workers"]["x-kubernetes-list-map-keys"] == ["name"]
    assert PROPERTIES["status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_causes_of_changes_are_the_reasons_of_rounds() -> None:
    told = set(re.findall(r"`(\w+)`", PROPERTIES["status.history[].cause"]["description"]))
    assert told == {*ROUND_REASONS}


def test_activities_are_those_that_the_operator_knows() -> None:
    assert PROPERTIES["status.goodput.activity"]["enum"] == [
        activity.value for activity in Activity
    ]


def test_no_number_is_a_float() -> None:
    assert not [path for path, schema in PROPERTIES.items() if schema.get("type") == "number"]


def test_subresources_serve_status_and_scale() -> None:
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_columns_show_properties_of_their_types() -> None:
    known = {path: schema.get("type") for path, schema in PROPERTIES.items()} | {
        "metadata.creationTimestamp": "date"
    }
    assert_none(
        column["name"]
        for column in VERSION["additionalPrinterColumns"]
        if known.get(re.sub(r"\[.*]", "[]", column["jsonPath"].lstrip("."))) != column["type"]
        or not column["description"]
    )
