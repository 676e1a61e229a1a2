"""What tells an object from others: read from any JSON, so that even an object that cannot be read is known by it. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from elastic_pytorch_operator.api.manifest import Manifest

MAX_VERSION_DIGITS = 20  # of 64 bits


class Identity(NamedTuple):
    """An object, and its version; a field that is missing or of another type is empty.

    Attributes:
        namespace: of the object.
        name: of the object.
        uid: of the object.
        version: the resource version as a number; 0: it has none.
    """

    namespace: str
    name: str
    uid: str
    version: int


def identify(manifest: object) -> Identity:
    """Which object a manifest is of."""
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    if not isinstance(metadata, Mapping):
        return Identity("", "", "", 0)
    return Identity(_text(metadata, "namespace"), _text(metadata, "name"), _text(metadata, "uid"), version_of(metadata))


def version_of(metadata: Manifest) -> int:
    """The resource version as a number, which grows with each write (Kubernetes guarantees the comparison since 1.35)."""
    version = _text(metadata, "resourceVersion")
    return int(version) if version.isascii() and version.isdecimal() and len(version) <= MAX_VERSION_DIGITS else 0


def _text(metadata: Manifest, field: str) -> str:
    value = metadata.get(field)
    return value if isinstance(value, str) else ""
