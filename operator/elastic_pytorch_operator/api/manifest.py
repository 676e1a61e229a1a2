"""What objects of the Kubernetes API are here: plain JSON."""

from collections.abc import Mapping
from typing import Any

Manifest = Mapping[str, Any]  # an object, or a part of one, that is only read
MutableManifest = dict[str, Any]  # one that is being put together
