"""Which object a manifest is of, and whether a change of it is one that a plan reads. Pure.

An identity is read from any JSON, so that even an object that cannot be read is known by it. Most
changes of pods are not read by plans: annotations, conditions, the states of init containers.
"""

from collections.abc import Collection, Mapping
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
    """An object, and its version; a field that is missing or of another type is empty."""

    namespace: str
    name: str
    uid: str
    version: int  # as a number; 0: none


def identify(manifest: object) -> Identity:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    if not isinstance(metadata, Mapping):
        return Identity("", "", "", 0)
    return Identity(
        _text(metadata, "namespace"),
        _text(metadata, "name"),
        _text(metadata, "uid"),
        version_of(metadata),
    )


def version_of(metadata: Manifest) -> int:
    """The resource version as a number, which grows with each write (Kubernetes guarantees the comparison since 1.35)."""
    version = _text(metadata, "resourceVersion")
    return (
        int(version)
        if version.isascii() and version.isdecimal() and len(version) <= MAX_VERSION_DIGITS
        else 0
    )


def _text(metadata: Manifest, field: str) -> str:
    value = metadata.get(field)
    return value if isinstance(value, str) else ""


def differ_in_status(before: Manifest, after: Manifest) -> bool:
    """Whether nothing but its version and its status differs between two manifests of an object."""
    old, new = ({**found["metadata"], "resourceVersion": ""} for found in (before, after))
    return old == new and before.get("spec") == after.get("spec")


def pods_alike(before: PodView, after: PodView, read: Collection[PodCondition]) -> bool:
    """Whether a plan makes no difference between a pod as it was and as it is.

    Args:
        read: the conditions that the rules of its job name. Plans read no others.
    """
    if before.conditions == after.conditions:
        return before == after
    return before.conditions.intersection(read) == after.conditions.intersection(
        read
    ) and before == replace(after, conditions=before.conditions)


def plans_alike(before: Job | TemplateUnread, after: Job | TemplateUnread) -> bool:
    """Whether the plan of a job stays what it was, for all that the job says: only its metadata has changed, or its progress."""
    if not (isinstance(before, Job) and isinstance(after, Job)):
        return False
    same = replace(after, version=before.version, status=before.status)
    return before == same and not says_more(before.status, after.status)
