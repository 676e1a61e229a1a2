"""A JSON merge patch (RFC 7386), as an API server applies it."""

from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, copied


def apply_merge_patch(old: Manifest, patch: Manifest) -> MutableManifest:
    """Returns an object after a JSON merge patch."""
    merged = {name: copied(value) for name, value in old.items() if name not in patch}
    for name, value in patch.items():
        if isinstance(value, dict):
            before = old.get(name)
            merged[name] = apply_merge_patch(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            merged[name] = copied(value)
    return merged
