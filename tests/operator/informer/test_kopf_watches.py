from typing import Any

import kopf
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.informer.kopf_watches import api_server, kopf_settings
from elastic_pytorch_operator.manifests.workload import workload as workload_of
from elastic_pytorch_operator.model.actions import CreateWorkload

from tests.operator.builders import a_queued_job, a_worker_pod
from tests.situations import situations


class Unread(dict[str, Any]):
    """An object that must not be copied."""

    def __deepcopy__(self, _: object) -> "Unread":
        raise AssertionError("copied")


def test_kopf_copies_no_object_at_an_event() -> None:
    persistence = kopf_settings().persistence
    body = kopf.Body({"metadata": Unread(name="a"), "spec": Unread(replicas=1)})
    essence = persistence.diffbase_storage.build(body=body, extra_fields=[("status",)])
    assert persistence.progress_storage.clear(essence=essence) == {}
    assert persistence.diffbase_storage.fetch(body=body) is None


def test_pods_and_workloads_are_found_by_labels_that_no_policy_of_others_writes() -> None:
    selectors = kopf_settings().watching.label_selectors
    pod = a_worker_pod()
    workload = workload_of(a_queued_job(), CreateWorkload(1, 2), {"priority": 0}, {})
    for resource, found in (("pods", pod), (kueue.WORKLOADS, workload)):
        assert selectors[resource] in found["metadata"]["labels"]
        assert selectors[resource].startswith(f"{names.GROUP}/")


@situations(
    "host, port, url",
    {
        "ipv4": ("10.96.0.1", "443", "https://10.96.0.1:443"),
        "ipv6": ("fd00:10:96::1", "6443", "https://[fd00:10:96::1]:6443"),
        "outside a pod": ("", "", ""),
    },
)
def test_api_server_is_asked_by_its_address(host: str, port: str, url: str) -> None:
    assert api_server({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}) == url
