"""Identifies the object of a manifest, and tells whether a plan reads a change of it. Pure.

An identity is read from any JSON: an unreadable object has one, too.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.status_changes import says_more
from elastic_pytorch_operator.spec.failure_rules import PodCondition
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.platform.job_template import TemplateUnread

MAX_VERSION_DIGITS = 20  # of 64 bits


class Identity(NamedTuple):
    """A field that is missing or of another type is empty."""

    namespace: str
    name: str
    uid: str
    version: int = 0  # none


def identify(manifest: object) -> Identity:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    if not isinstance(metadata, Mapping):
        return Identity("", "", "")
    return Identity(
        _text(metadata, "namespace"),
        _text(metadata, "name"),
        _text(metadata, "uid"),
        version_of(metadata),
    )


def version_of(metadata: Manifest) -> int:
    """The resource version as a number, which Kubernetes guarantees to grow since 1.35."""
    version = _text(metadata, "resourceVersion")
    known = version.isascii() and version.isdecimal() and len(version) <= MAX_VERSION_DIGITS
    return int(version) if known else 0


def _text(metadata: Manifest, field: str) -> str:
    value = metadata.get(field)
    return value if isinstance(value, str) else ""


def differ_in_status(before: Manifest, after: Manifest) -> bool:
    """Whether two manifests of an object differ only in its version and its status."""
    old, new = ({**found["metadata"], "resourceVersion": ""} for found in (before, after))
    return old == new and before.get("spec") == after.get("spec")


def pods_alike(before: PodView, after: PodView, read: Set[PodCondition]) -> bool:
    """Whether a plan, which reads only some conditions, sees no difference between two views."""
    differ = before.conditions != after.conditions
    if differ and before.conditions & read == after.conditions & read:
        after = replace(after, conditions=before.conditions)
    return before == after


def plans_alike(before: Job | TemplateUnread, after: Job | TemplateUnread) -> bool:
    """Whether only a job's metadata or its progress has changed, which plans do not read."""
    if not (isinstance(before, Job) and isinstance(after, Job)):
        return False
    same = replace(after, version=before.version, status=before.status)
    return before == same and not says_more(before.status, after.status)
