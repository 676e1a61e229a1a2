"""Manifests in, manifests out: the kind of each document, and its remarks."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration.process_variables import listed
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remark, Remarks
from elastic_pytorch_client.migration.sources import (
    job,
    jobset,
    other_kinds,
    pytorchjob,
    runtime,
    trainjob,
    volcano,
)
from elastic_pytorch_client.migration.sources.slurm.job import migrate_batch_script

Manifest = dict[str, Any]
Source = Callable[[Mapping[str, Any], Remarks, Sequence[str]], Sequence[Mapping[str, Any]]]

# The kinds that need only their own manifest.
SOURCES: Mapping[tuple[str, str], Source] = {
    (pytorchjob.API_GROUP, pytorchjob.KIND): pytorchjob.migrate_pytorchjob,
    (job.API_GROUP, job.KIND): job.migrate_job,
    (jobset.API_GROUP, jobset.KIND): jobset.migrate_jobset,
    (volcano.API_GROUP, volcano.KIND): volcano.migrate_volcano_job,
}
# What `envsubst` fills in, though shells, programs and annotations may have the same.
PLACEHOLDER = re.compile(r"\$(?:\{\w+\}|[A-Z][A-Z0-9_]*\b)")
READ_BY_OTHERS = {"command", "args", "value", "annotations"}


@dataclass(frozen=True, slots=True)
class Migrated:
    title: str
    documents: Sequence[Mapping[str, Any]]
    remarks: Sequence[Remark] = ()
    failed: Remark | None = None


def migrate_documents(
    documents: Sequence[Any],
    runtimes: Sequence[Mapping[str, Any]] = (),
    entrypoint: Sequence[str] = (),
) -> list[Migrated]:
    """Migrates jobs that train; passes other objects on, and only reads runtimes."""
    objects = list(_objects(documents))
    known = [*(found for found in objects if found.get("kind") in runtime.KINDS), *runtimes]
    jobs = [found for found in objects if found.get("kind") not in runtime.KINDS]
    if not jobs:
        text = "no job found: pass runtimes with --runtime" if objects else "no object found"
        return [Migrated("document", (), failed=Remark("kind", text))]
    migrated = [_migrate(found, known, entrypoint) for found in jobs]
    hosts = {
        (_namespace(found), job.subdomain_of(found))
        for found, result in zip(jobs, migrated, strict=True)
        if found.get("kind") == job.KIND
        and any(document is not found for document in result.documents)
    }

    def is_superfluous(found: Manifest) -> bool:
        return _is_headless(found) and (_namespace(found), _name(found)) in hosts

    return [
        _superfluous(found) if is_superfluous(found) else result
        for found, result in zip(jobs, migrated, strict=True)
    ]


def migrate_script(text: str, file_name: str) -> Migrated:
    remarks = Remarks()
    title = "batch script"
    try:
        return Migrated(title, migrate_batch_script(text, file_name, remarks), remarks.found)
    except CannotMigrate as error:
        return Migrated(title, (), remarks.found, error.remark)


def _objects(documents: Sequence[Any]) -> Iterator[Manifest]:
    for document in documents:
        if not isinstance(document, dict):
            yield {"kind": "", "metadata": {}, "spec": document}
            continue
        items = document.get("items")
        if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from _objects(items)
        else:
            yield document


def _migrate(
    found: Manifest, runtimes: Sequence[Mapping[str, Any]], entrypoint: Sequence[str]
) -> Migrated:
    group, kind = str(found.get("apiVersion", "")).partition("/")[0], found.get("kind")
    if not kind:
        failed = Remark("kind", "is missing: this is no Kubernetes object")
        return Migrated("document", (), failed=failed)
    remarks = Remarks()
    title = f"{kind} {_name(found)}"
    try:
        source = SOURCES.get((group, str(kind)))
        if (group, kind) == (trainjob.API_GROUP, trainjob.KIND):
            source = partial(trainjob.migrate_trainjob, runtimes=runtimes)
        if source:
            _refuse_placeholders(found)
            jobs = source(found, remarks, entrypoint)
            return Migrated(title, _with_its_volumes(jobs), remarks.found)
    except CannotMigrate as error:
        return Migrated(title, (), remarks.found, error.remark)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        failed = Remark("spec", f"does not have the form of a {kind}: {error}")
        return Migrated(title, (), remarks.found, failed)
    if (refused := other_kinds.refusal(found)) is not None:
        return Migrated(title, (), failed=refused)
    return Migrated(title, [found], other_kinds.passed_on(found))


def _refuse_placeholders(found: Manifest) -> None:
    """Refuses a template of `envsubst`, as Kubernetes would refuse its numbers and names."""
    if names := dict(_placeholders("", found)):
        path, one = next(iter(names.values())), len(names) == 1
        what, more = ("is a placeholder", "it") if one else ("are placeholders", "them")
        text = f"{listed(sorted(names))} {what}: fill {more} in first"
        raise CannotMigrate(path, f"{text}, envsubst < FILE | kubectl epj migrate -f -")


def _placeholders(path: str, part: Any) -> Iterator[tuple[str, str]]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key not in READ_BY_OTHERS:
                yield from _placeholders(f"{path}.{key}" if path else str(key), value)
    elif isinstance(part, list):
        for place, item in enumerate(part):
            yield from _placeholders(f"{path}[{place}]", item)
    elif isinstance(part, str):
        yield from ((found[0], path) for found in PLACEHOLDER.finditer(part))


def _with_its_volumes(documents: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Returns the same documents.

    Raises:
        CannotMigrate: a job mounts a volume that it lacks, as where a JobSet makes claims for pods.
    """
    for spec in (document["spec"] for document in documents if document.get("kind") == names.KIND):
        pod = spec["template"]["spec"]
        volumes = {volume.get("name") for volume in pod.get("volumes") or ()}
        volumes |= {claim["metadata"]["name"] for claim in spec.get("sharedVolumeClaims") or ()}
        for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
            for mount in container.get("volumeMounts") or ():
                if mount.get("name") not in volumes:
                    text = (
                        f"mounts the volume {mount.get('name')}, which the new job does not have: "
                        "add it to the pod's volumes"
                    )
                    raise CannotMigrate(f"container {container.get('name')}", text)
    return documents


def _name(found: Manifest) -> str:
    metadata = _metadata(found)
    return str(metadata.get("name") or metadata.get("generateName") or "?")


def _namespace(found: Manifest) -> str:
    return str(_metadata(found).get("namespace") or "")


def _metadata(found: Manifest) -> Manifest:
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _is_headless(found: Manifest) -> bool:
    spec = found.get("spec")
    headless = isinstance(spec, dict) and spec.get("clusterIP") == "None"
    return headless and found.get("kind") == "Service"


def _superfluous(found: Manifest) -> Migrated:
    text = (
        "the Service is left out: the operator gives the job a headless one of its own. Delete it "
        "together with the old Job"
    )
    return Migrated(f"Service {_name(found)}", (), (Remark("kind", text),))
