"""The spec that a job has: its own, over that of the template that its status keeps. Pure."""

from collections.abc import Mapping
from typing import Any

# The operator's own module, by a link: both packages ship it, and neither imports the other.
from elastic_pytorch_client.reading.strategic_merge import merge


def whole_spec(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A job's spec merged over its template's; its own alone if it has no template, or if the operator has not read that yet."""
    own = manifest.get("spec") or {}
    kept = (manifest.get("status") or {}).get("template") or {}
    named = own.get("templateRef") or {}
    if not named or (kept.get("kind"), kept.get("name")) != (named.get("kind"), named.get("name")):
        return dict(own)
    return merge(kept.get("spec") or {}, own)
