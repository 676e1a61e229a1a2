"""Which pods train in kinds that do not say so, and what a Job's failure rules become."""

from typing import Any

import pytest
from elastic_pytorch_client.migration.documents import migrate_documents
from elastic_pytorch_client.migration.job_size import group_size
from elastic_pytorch_client.migration.launch import resolve
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.job import pods_of
from elastic_pytorch_client.migration.sources.pod_failure_policy import failure_rules
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
