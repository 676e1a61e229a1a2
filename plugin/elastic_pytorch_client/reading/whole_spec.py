"""The spec that a job has: its own, over that of the template that its status keeps. Pure."""

from collections.abc import Mapping
from typing import Any

# The operator's own module, by a link: both packages ship it, and neither imports the other.
from elastic_pytorch_client.reading.strategic_merge import merge


def whole_spec(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A job's spec merged over its template's; its own alone if it has no template, or if the operator has not read that yet."""
    own, kept = manifest.get("spec") or {}, kept_template(manifest)
    return dict(own) if kept is None else merge(kept.get("spec") or {}, own)


def kept_template(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The template that a job's status keeps; None: the job names none, or another one that the operator has not read yet."""
    named: Mapping[str, Any] = (manifest.get("spec") or {}).get("templateRef") or {}
    kept: Mapping[str, Any] = (manifest.get("status") or {}).get("template") or {}
    return kept if named and kept.get("name") == named.get("name") else None
