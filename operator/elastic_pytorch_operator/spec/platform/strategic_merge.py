"""Merges a job's own spec over that of a template, as `kubectl` merges a strategic patch. Pure.

Lists of a pod's spec that Kubernetes keys are merged item by item: the template's items keep their
places, and new ones follow. Tolerations, which have no key, are appended. A null in the job's spec
removes what the template has there; the API server admits nulls only in the pod's spec.
Source: the `x-kubernetes-patch-merge-key` of Kubernetes' OpenAPI (v1.30).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest

# By path below the job's spec, `[]` for the items of a list: the keys of two equal items.
_CONTAINER: Mapping[str, tuple[str, ...]] = {
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
}
_POD: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "resourceClaims": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
_SPEC = "template.spec"
KEYS: Mapping[str, tuple[str, ...]] = {
    **{f"{_SPEC}.{name}": keys for name, keys in _POD.items()},
    **{
        f"{_SPEC}.{kind}[].{name}": keys
        for kind in ("containers", "initContainers")
        for name, keys in _CONTAINER.items()
    },
}
APPENDED = (f"{_SPEC}.tolerations", "scheduling.extraWorkers.tolerations")
KEY_DEFAULTS = {"protocol": "TCP"}
# A variable or a volume of the same name is another one.
UNIONS = (f"{_SPEC}.volumes[]", f"{_SPEC}.containers[].env[]", f"{_SPEC}.initContainers[].env[]")


def merge(below: Manifest, above: Manifest, path: str = "") -> dict[str, Any]:
    if path in UNIONS:
        return dict(above)
    merged = dict(below)
    for name, value in above.items():
        inner = f"{path}.{name}" if path else name
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_values(below.get(name), value, inner)
    return merged


def _merge_values(below: Any, above: Any, path: str) -> Any:
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return merge(below, above, path)
    if isinstance(below, list) and isinstance(above, list):
        if path in APPENDED:
            return [*below, *(item for item in above if item not in below)]
        if path in KEYS:
            return _merge_lists(below, above, path)
    return above


def _merge_lists(below: Sequence[Any], above: Sequence[Any], path: str) -> list[Any]:
    """Merges objects by their keys; an item without keys stays, and validation names it."""
    keys, merged = KEYS[path], list(below)
    places = {
        found: place
        for place, item in enumerate(below)
        if (found := _identity(item, keys)) is not None
    }
    for item in above:
        found = _identity(item, keys)
        place = places.get(found) if found is not None else None
        if place is None:
            merged.append(item)
        else:
            merged[place] = merge(merged[place], item, f"{path}[]")
    return merged


def _identity(item: Any, keys: Sequence[str]) -> tuple[Any, ...] | None:
    if not isinstance(item, Mapping):
        return None
    found = tuple(item.get(key, KEY_DEFAULTS.get(key)) for key in keys)
    return None if any(not isinstance(value, str | int) for value in found) else found
