"""What kopf is told to leave out."""

from typing import Any

import kopf
import pytest
from elastic_pytorch_operator.informer.kopf_watches import api_server, kopf_settings


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


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        ("10.96.0.1", "443", "https://10.96.0.1:443"),
        ("fd00:10:96::1", "6443", "https://[fd00:10:96::1]:6443"),
        ("", "", ""),
    ],
    ids=["ipv4", "ipv6", "outside a pod"],
)
def test_api_server_is_asked_by_its_address(host: str, port: str, url: str) -> None:
    assert api_server({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}) == url
