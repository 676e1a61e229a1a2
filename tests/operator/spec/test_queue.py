from typing import Any

import pytest
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.platform.job_defaults import JobDefaults
from elastic_pytorch_operator.spec.queue import Queue, hash_template

from tests.operator.builders import a_manifest


def test_labels_and_annotations_of_a_job_name_its_queue() -> None:
    manifest = a_manifest()
    assert parse_job(manifest).queue is None
    manifest["metadata"]["labels"] = {
        "kueue.x-k8s.io/queue-name": "team",
        "kueue.x-k8s.io/priority-class": "high",
    }
    manifest["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/a": "1", "other": "2"}
    template = manifest["spec"]["template"]
    assert parse_job(manifest).queue == Queue(
        "team", "high", {"provreq.kueue.x-k8s.io/a": "1"}, hash_template(template)
    )


CONTAINER = {"name": "pytorch", "image": "torch", "resources": {"limits": {"cpu": "1"}}}


def hash_of(
    annotations: dict[str, str] | None = None, container: dict[str, Any] | None = None, **pod: Any
) -> str:
    return hash_template(
        {
            "metadata": {"annotations": annotations or {}},
            "spec": {"containers": [{**CONTAINER, **(container or {})}], **pod},
        }
    )


@pytest.mark.parametrize(
    "change",
    [
        {"container": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}},
        {"container": {"resources": {"requests": {"cpu": "1"}}}},
        {"initContainers": [CONTAINER]},
        {"initContainers": [{**CONTAINER, "restartPolicy": "Always"}]},
        {"resources": {"limits": {"cpu": "9"}}},
        {"overhead": {"cpu": "1"}},
        {"nodeSelector": {"pool": "gpu"}},
        {"affinity": {"nodeAffinity": {}}},
        {"tolerations": [{"operator": "Exists"}]},
        {"priorityClassName": "high"},
        {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
    ],
    ids=str,
)
def test_quota_is_granted_for_what_a_pod_requests_and_where_it_may_run(
    change: dict[str, Any],
) -> None:
    assert hash_of(**change) != hash_of()


@pytest.mark.parametrize(
    "change",
    [{"container": {"image": "other"}}, {"hostNetwork": True}, {"annotations": {"team": "a"}}],
    ids=str,
)
def test_quota_serves_another_image(change: dict[str, Any]) -> None:
    assert hash_of(**change) == hash_of()


def test_tolerations_of_the_operator_change_no_quota() -> None:
    manifest = a_manifest()
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    defaults = JobDefaults(tolerations=({"operator": "Exists"},))
    assert parse_job(manifest, defaults).queue == parse_job(manifest).queue
