"""Manifests in, manifests out: which kind each document is, and what was said of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_client.migration.remarks import CannotMigrate, Remark, Remarks
from elastic_pytorch_client.migration.sources import other_kinds, pytorchjob, runtime, trainjob

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Migrated:
    """What became of one document.

    Attributes:
        title: its kind and name.
        documents: what is written in its place.
        remarks: what to tell about it.
        failed: why nothing is written; None: all is well.
    """

    title: str
    documents: Sequence[Mapping[str, Any]]
    remarks: Sequence[Remark] = field(default=())
    failed: Remark | None = None


def migrate_documents(
    documents: Sequence[Any], runtimes: Sequence[Mapping[str, Any]] = (), entrypoint: Sequence[str] = ()
) -> list[Migrated]:
    """Migrates PyTorchJobs and TrainJobs; other objects pass as they are, runtimes are only read.

    Args:
        documents: parsed YAML.
        runtimes: more runtimes that TrainJobs may refer to.
        entrypoint: of the image, for containers without a command.
    """
    objects = list(_objects(documents))
    known = [*(found for found in objects if found.get("kind") in runtime.KINDS), *runtimes]
    jobs = [found for found in objects if found.get("kind") not in runtime.KINDS]
    if not jobs:
        text = "no job found: pass runtimes with --runtime" if objects else "no object found"
        return [Migrated("document", (), failed=Remark("kind", text))]
    return [_migrate(found, known, entrypoint) for found in jobs]


def _objects(documents: Sequence[Any]) -> Iterator[Manifest]:
    """The objects of documents, those in lists one by one."""
    for document in documents:
        if not isinstance(document, dict):
            yield {"kind": "", "metadata": {}, "spec": document}
        elif str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
            yield from _objects(document["items"])
        else:
            yield document


def _migrate(found: Manifest, runtimes: Sequence[Mapping[str, Any]], entrypoint: Sequence[str]) -> Migrated:
    group, kind = str(found.get("apiVersion", "")).partition("/")[0], found.get("kind")
    if not kind:
        return Migrated("document", (), failed=Remark("kind", "is missing: this is no Kubernetes object"))
    remarks = Remarks()
    title = f"{kind} {(found.get('metadata') or {}).get('name') or (found.get('metadata') or {}).get('generateName') or '?'}"
    try:
        if (group, kind) == (pytorchjob.API_GROUP, pytorchjob.KIND):
            return Migrated(title, pytorchjob.migrate_pytorchjob(found, remarks, entrypoint), remarks.found)
        if (group, kind) == (trainjob.API_GROUP, trainjob.KIND):
            return Migrated(title, trainjob.migrate_trainjob(found, remarks, runtimes, entrypoint), remarks.found)
    except CannotMigrate as error:
        return Migrated(title, (), remarks.found, error.remark)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return Migrated(title, (), remarks.found, Remark("spec", f"does not have the form of a {kind}: {error}"))
    if (failed := other_kinds.refusal(found)) is not None:
        return Migrated(title, (), failed=failed)
    return Migrated(title, [found], other_kinds.passed_on(found))
