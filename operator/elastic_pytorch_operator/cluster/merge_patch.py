"""A JSON merge patch (RFC 7386), as an API server applies it."""

import copy

from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest


def apply_merge_patch(old: Manifest, patch: Manifest) -> MutableManifest:
    """Returns an object after a JSON merge patch."""
    merged = copy.deepcopy(dict(old))
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            before = merged.get(name)
            merged[name] = apply_merge_patch(before if isinstance(before, dict) else {}, value)
        else:
            merged[name] = copy.deepcopy(value)
    return merged
