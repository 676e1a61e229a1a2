"""What objects of the Kubernetes API are here: plain JSON."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

Manifest = Mapping[str, Any]  # an object, or a part of one, that is only read
MutableManifest = dict[str, Any]  # one that is being put together
Json = TypeVar("Json")


def copied(value: Json) -> Json:
    """Returns a deep copy of JSON. `copy.deepcopy` takes several times as long, as it looks for what is there twice."""
    return cast(Json, _copied(value))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(field) for name, field in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
