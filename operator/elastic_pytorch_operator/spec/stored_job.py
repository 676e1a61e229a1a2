"""A job as the API server stores it, also with a spec that cannot be carried out. Pure.

A job that runs goes on by its last valid spec, which its status keeps for the next leader. If none
is known, as after an upgrade to a stricter operator, the fields at fault do not count. Suspension,
deletion and the queue are those of the present object. A job that does not run waits until its spec
is corrected.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import has_ended, is_true
from elastic_pytorch_operator.api.manifest import Manifest, copied
from elastic_pytorch_operator.api.numbers import parse_count
from elastic_pytorch_operator.spec.fields import InvalidJob, reading_spec
from elastic_pytorch_operator.spec.job import Job, parse_job, parse_key, parse_whole
from elastic_pytorch_operator.spec.platform.job_defaults import (
    API_DEFAULTS,
    CLEAN_POD_POLICIES,
    JobDefaults,
)
from elastic_pytorch_operator.spec.platform.job_template import (
    FIELD,
    NONE_READ,
    Templates,
    TemplateUnread,
    read_template_name,
    whole_spec,
)
from elastic_pytorch_operator.spec.queue import read_queue

LAST_VALID = "lastValidSpec"  # of the status
# Those of the present object, unless it is too large to have them.
PRESENT = ("suspend", "managedBy", "template", "templateRef", "sharedVolumeClaims")
# By these the workers of one group agree with each other: a guess would break the group.
NOT_GUESSED = (
    *("replicas", "minReplicas", "maxReplicas", "unitReplicas", "nprocPerNode"),
    *("rendezvous", "prepare", "injectAgent"),
)
MAX_FAULTS = 3  # each is found by reading the job again


def parse_stored(
    manifest: Manifest,
    defaults: JobDefaults = API_DEFAULTS,
    valid: Manifest | None = None,
    templates: Templates = NONE_READ,
) -> Job:
    """Reads a job whatever is wrong with its spec (`Job.problem`), unless its template is unread.

    `valid`: its last valid spec; None: as its status has it, if it does.
    """
    try:
        return parse_job(manifest, defaults, templates)
    except InvalidJob as problem:
        status = manifest.get("status") or {}
        # A job that has ended without a template need not have one.
        if isinstance(problem, TemplateUnread) and not (
            problem.template_uid is None and has_ended(status)
        ):
            raise
        runs = (
            status.get("round") and not has_ended(status) and not is_true(status, names.SUSPENDED)
        )
        job = _by_last_valid(manifest, defaults, valid, templates) if runs else None
        return replace(job or _resting(manifest, defaults, templates), problem=str(problem))


def valid_spec(job: Job, manifest: Manifest) -> Manifest | None:
    return job.last_valid if job.problem else manifest["spec"]


def recorded(valid: Manifest) -> Manifest:
    return {name: value for name, value in valid.items() if name not in PRESENT}


def _by_last_valid(
    manifest: Manifest, defaults: JobDefaults, valid: Manifest | None, templates: Templates
) -> Job | None:
    """The job by its last valid spec; None: too little of that can be read."""
    present = manifest.get("spec")
    valid = valid or (manifest.get("status") or {}).get(LAST_VALID)
    if not isinstance(present, Mapping):
        return None
    spec, kept = present, valid if isinstance(valid, Mapping) else None
    if kept is not None:
        others = {name: value for name, value in kept.items() if name != "suspend"}
        spec = others | {name: present[name] for name in PRESENT if name in present}
    whole = _read_whole({**manifest, "spec": spec}, templates)
    for _ in range(MAX_FAULTS):
        if whole is None:
            return None
        try:
            return replace(parse_whole(manifest, whole, defaults), last_valid=kept)
        except InvalidJob as fault:
            whole = _without(whole, fault.path)
    return None


def _without(spec: Manifest, path: str) -> Manifest | None:
    """A spec without the field at fault, or what lacks it; None: nothing can be left out."""
    steps = re.findall(r"[^.\[\]]+", path)[1:]
    if not steps or steps[0] in NOT_GUESSED:
        return None
    spec = copied(dict(spec))
    inner: Any = spec
    holder: Any = None
    place: Any = None
    for step in steps:
        at = parse_count(step) if isinstance(inner, list) else step
        try:
            inner, holder, place = inner[at], inner, at
        except (LookupError, TypeError):
            break
    if holder is None:
        return None
    del holder[place]
    return spec


def _resting(manifest: Manifest, defaults: JobDefaults, templates: Templates) -> Job:
    """A job that wants no worker, with what can be read about the end of its pods and itself."""
    metadata, present = manifest["metadata"], manifest.get("spec")
    readable = present if isinstance(present, Mapping) else {}
    spec = _read_whole(manifest, templates) or readable
    ttl, policy = spec.get("ttlSecondsAfterFinished"), spec.get("cleanPodPolicy")
    rendezvous = spec.get("rendezvous")
    backend = rendezvous.get("backend") if isinstance(rendezvous, Mapping) else None
    status, generation = manifest.get("status") or {}, metadata.get("generation")
    kept = status.get(FIELD)
    return Job(
        parse_key(manifest),
        metadata.get("uid", ""),
        generation if isinstance(generation, int) else 1,
        wanted=0,
        minimum=0,
        maximum=0,
        suspend=spec.get("suspend") is True,
        managed_by=str(spec.get("managedBy") or ""),
        max_failures=sys.maxsize,
        ttl_seconds=ttl if isinstance(ttl, int) and ttl >= 0 else defaults.ttl_seconds,
        clean_pod_policy=policy if policy in CLEAN_POD_POLICIES else defaults.clean_pod_policy,
        backend=backend if isinstance(backend, str) else names.BACKEND_OPERATOR,
        status=status,
        deleting=bool(metadata.get("deletionTimestamp")),
        queue=read_queue(metadata),
        version=str(metadata.get("resourceVersion", "")),
        template_uid=kept.get("uid") if isinstance(kept, Mapping) else None,
    )


def _read_whole(manifest: Manifest, templates: Templates) -> Manifest | None:
    """A job's spec over its template, if both can be read."""
    try:
        with reading_spec():
            return whole_spec(manifest, read_template_name(manifest["spec"]), templates)
    except InvalidJob:
        return None
