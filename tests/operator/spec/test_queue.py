from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.queue import Queue

from tests.operator.builders import a_manifest


def test_labels_and_annotations_of_a_job_name_its_queue() -> None:
    manifest = a_manifest()
    assert parse_job(manifest).queue is None
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "high"}
    manifest["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/a": "1", "other": "2"}
    assert parse_job(manifest).queue == Queue("team", "high", {"provreq.kueue.x-k8s.io/a": "1"})
