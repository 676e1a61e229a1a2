"""Which pods train in kinds that do not say so, and what a Job's failure rules become."""

from typing import Any

import pytest
from elastic_pytorch_client.migration.documents import migrate_documents
from elastic_pytorch_client.migration.failure_policy import failure_rules
from elastic_pytorch_client.migration.job_size import group_size
from elastic_pytorch_client.migration.launch import resolve
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.job import pods_of
from elastic_pytorch_client.migration.sources.training_pods import trains


@pytest.mark.parametrize(
    ("container", "found"),
    [
        ({"command": ["torchrun", "a.py"]}, True),
        ({"command": ["sh", "-c", "cd /a && python -m torch.distributed.run a.py"]}, True),
        ({"command": ["accelerate", "launch", "a.py"]}, True),
        ({"command": ["deepspeed", "a.py"]}, True),
        ({"command": ["bash", "-c", "cd /a; deepspeed a.py"]}, True),
        ({"command": ["python", "train_mnist.py"]}, True),
        ({"command": ["python", "-m", "llm.finetune"]}, True),
        ({"command": ["python", "a.py"], "env": [{"name": "WORLD_SIZE", "value": "2"}]}, True),
        ({"args": ["--epochs=1"], "env": [{"name": "MASTER_ADDR", "value": "a"}]}, True),
        ({"command": ["python", "a.py"]}, False),
        ({"command": ["pip", "install", "deepspeed"]}, False),
        ({"command": ["tar", "-xf", "training-data.tar"]}, False),
        ({"image": "train"}, False),
    ],
)
def test_what_trains(container: dict[str, Any], found: bool) -> None:
    assert trains(container) is found


def test_the_entrypoint_of_the_image_tells_what_trains() -> None:
    assert trains({"args": ["--epochs=1"]}, ["python", "/opt/train.py"])


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({}, 1),
        ({"parallelism": 3}, 3),
        ({"completions": 4, "parallelism": 4}, 4),
        ({"completions": 2, "parallelism": 4}, 2),
        ({"completions": 4, "parallelism": 0}, 4),
    ],
)
def test_pods_of_a_job_that_run_side_by_side(spec: dict[str, int], pods: int) -> None:
    assert pods_of("spec", spec) == pods


@pytest.mark.parametrize(
    ("pods", "options", "sizes"),
    [
        (4, {}, {"replicas": 4}),
        (4, {"nnodes": "4"}, {"replicas": 4}),
        (4, {"nnodes": "$N"}, {"replicas": 4}),
        (4, {"nnodes": "2"}, {"replicas": 2}),
        (3, {"nnodes": "2:4"}, {"replicas": 3, "minReplicas": 2, "maxReplicas": 4}),
        (1, {"nnodes": "2:4"}, {"replicas": 2, "minReplicas": 2, "maxReplicas": 4}),
        (1, {"standalone": ""}, {"replicas": 1}),
    ],
)
def test_sizes_of_a_group(pods: int, options: dict[str, str], sizes: dict[str, int]) -> None:
    remarks = Remarks()
    assert group_size("spec.completions", pods, options, remarks) == sizes
    assert bool(remarks.found) is (sizes["replicas"] != pods)


@pytest.mark.parametrize("options", [{"standalone": ""}, {"nnodes": "1"}])
def test_pods_that_train_each_by_themselves_are_no_group(options: dict[str, str]) -> None:
    with pytest.raises(CannotMigrate, match="trains by itself"):
        group_size("spec.completions", 2, options, Remarks())


@pytest.mark.parametrize(
    ("rule", "migrated"),
    [
        (
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1, 2]}},
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1, 2]}},
        ),
        (
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [0]},
            },
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [*range(1, 256)]}},
        ),
        (
            {"action": "FailIndex", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]},
            {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]},
        ),
        (
            {
                "action": "Count",
                "onExitCodes": {"containerName": "logs", "operator": "In", "values": [1]},
            },
            None,
        ),
        ({"action": "Count", "onExitCodes": {"operator": "In", "values": [300]}}, None),
        ({"action": "Surprise", "onExitCodes": {"operator": "In", "values": [1]}}, None),
    ],
)
def test_rules_about_failures(rule: dict[str, Any], migrated: dict[str, Any] | None) -> None:
    assert failure_rules("rules", [rule], "main", Remarks()) == (
        [] if migrated is None else [migrated]
    )


def test_variables_of_a_container_are_known_in_each_spelling() -> None:
    assert resolve("$N ${N} $(N) $M", {"N": "2"}) == "2 2 2 $M"


@pytest.mark.parametrize(("metadata", "subdomain"), [("x", "a"), ({"name": "a"}, []), (3, {})])
def test_a_job_of_a_wrong_form_fails_by_itself(metadata: object, subdomain: object) -> None:
    pod = {
        "subdomain": subdomain,
        "containers": [{"name": "a", "image": "i", "command": ["torchrun", "a.py"]}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": {"spec": pod}},
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}}
    first, second = migrate_documents([job, claim])
    assert (first.failed is None) is isinstance(metadata, dict)
    assert second.documents == [claim]


def job_of(**container: Any) -> dict[str, Any]:
    spec = {"template": {"spec": {"containers": [{"name": "a", "image": "i", **container}]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(
    "words",
    [
        ["torchrun", "train.py", "$(JOB_COMPLETION_INDEX)"],
        ["torchrun", "train.py", "sh", "$(JOB_COMPLETION_INDEX)"],
    ],
)
def test_an_index_that_pods_do_not_have_is_refused_in_arguments(words: list[str]) -> None:
    [found] = migrate_documents([job_of(command=words)])
    assert "use JOB_COMPLETION_INDEX, which pods do not have" in str(found.failed)


def test_an_index_that_the_container_defines_stays_with_the_new_label() -> None:
    label = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": label}}}
        for name in ("POD_INDEX", "JOB_COMPLETION_INDEX")
    ]
    command = ["torchrun", "train.py", "$(JOB_COMPLETION_INDEX)"]
    [found] = migrate_documents([job_of(command=command, env=env)])
    assert found.failed is None
    [container] = found.documents[0]["spec"]["template"]["spec"]["containers"]
    paths = [one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]]
    assert paths == ["metadata.labels['elasticpytorch.dev/worker-index']"] * 2


@pytest.mark.parametrize("number", [float("inf"), "x", [], int("9" * 400)])
def test_a_number_of_a_wrong_form_fails_its_job_alone(number: object) -> None:
    job = job_of(command=["torchrun", "train.py"])
    job["spec"]["parallelism"] = number
    jobs = [job, job_of(command=["torchrun", "train.py"])]
    assert [bool(found.documents) for found in migrate_documents(jobs)][1:] == [True]


def test_an_object_without_usable_metadata_passes() -> None:
    odd = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": ["etcd"]}
    [found] = migrate_documents([odd])
    assert found.documents == [odd]


@pytest.mark.parametrize(
    ("restarts", "backoff_limit", "path"),
    [
        (5, 2, "spec.template.spec.containers[a], --max-restarts"),
        (5, None, "spec.template.spec.containers[a], --max-restarts"),
        (2, 7, "spec.backoffLimit"),
    ],
)
def test_a_limit_of_failures_names_where_it_came_from(
    restarts: int, backoff_limit: int | None, path: str
) -> None:
    job = job_of(command=["torchrun", f"--max-restarts={restarts}", "train.py"])
    job["spec"]["backoffLimit"] = backoff_limit
    [found] = migrate_documents([job])
    said = {remark.path for remark in found.remarks if "becomes failurePolicy" in remark.text}
    assert said == {path}


def test_a_limit_of_volcanos_torchrun_names_its_option() -> None:
    task = {"name": "node", **job_of(command=["torchrun", "--max-restarts=5", "t.py"])["spec"]}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"tasks": [task]},
    }
    [found] = migrate_documents([job])
    said = [remark.path for remark in found.remarks if "becomes failurePolicy" in remark.text]
    assert said == ["spec.tasks[node].template.spec.containers[a], --max-restarts"]
