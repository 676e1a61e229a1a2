"""What kopf is told to leave out."""

from typing import Any

import kopf
from elastic_pytorch_operator.informer.kopf_watches import kopf_settings


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
