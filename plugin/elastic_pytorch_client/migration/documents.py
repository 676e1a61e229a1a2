"""Manifests in, manifests out: the kind of each document, and its remarks."""

import difflib
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
    pytorchjob,
    trainjob,
    volcano,
)
from elastic_pytorch_client.migration.sources.slurm.job import migrate_batch_script

Manifest = dict[str, Any]
Documents = Sequence[Mapping[str, Any]]
Source = Callable[[Mapping[str, Any], Remarks, Sequence[str]], Documents]

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
# Other kinds that train, or hold jobs that do.
REFUSED = dict.fromkeys(
    (
        *("MPIJob", "TFJob", "PaddleJob", "XGBoostJob", "MXJob", "JAXJob"),
        *("RayJob", "RayCluster", "RayService", "LeaderWorkerSet"),
    ),
    "is not migrated. If its script uses torch.distributed, without MPI and Ray, write an "
    "ElasticPyTorchJob with that script in `args`",
) | dict.fromkeys(
    (
        *("Workflow", "CronWorkflow", "WorkflowTemplate", "ClusterWorkflowTemplate"),
        *("PipelineRun", "Experiment"),
    ),
    "a job inside of another object is not migrated. Take it out into a file, migrate that, and "
    "put the result in its place",
)
GROUPS = {
    pytorchjob.KIND: pytorchjob.API_GROUP,
    trainjob.KIND: trainjob.API_GROUP,
    names.KIND: names.GROUP,
}
LEAST_LIKENESS = 0.85  # PyTorchJobs is 0.95 like PyTorchJob, MPIJob half


@dataclass(frozen=True, slots=True)
class Migrated:
    title: str
    documents: Documents
    remarks: Sequence[Remark] = ()
    failed: Remark | None = None


def migrate_documents(
    documents: Sequence[Any],
    runtimes: Sequence[Mapping[str, Any]] = (),
    entrypoint: Sequence[str] = (),
) -> list[Migrated]:
    """Migrates jobs that train; passes other objects on, and only reads runtimes."""
    objects = list(_objects(documents))
    known = [found for found in objects if found.get("kind") in trainjob.RUNTIMES]
    known += _objects(runtimes)
    jobs = [found for found in objects if found.get("kind") not in trainjob.RUNTIMES]
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
    return [
        _superfluous(found)
        if _is_headless(found) and (_namespace(found), _name(found)) in hosts
        else result
        for found, result in zip(jobs, migrated, strict=True)
    ]


def migrate_script(text: str, file_name: str) -> Migrated:
    migrate = partial(migrate_batch_script, text, file_name)
    return _attempt("batch script", "the script", "a batch script", migrate)


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
    title = f"{kind} {_name(found)}"
    source = SOURCES.get((group, str(kind)))
    if (group, kind) == (trainjob.API_GROUP, trainjob.KIND):
        source = partial(trainjob.migrate_trainjob, runtimes=runtimes)
    if source is None:
        return _pass_on(title, str(kind), group, found)

    def migrate(remarks: Remarks) -> Documents:
        _refuse_placeholders(found)
        return source(found, remarks, entrypoint)

    return _attempt(title, "spec", f"a {kind}", migrate)


def _pass_on(title: str, kind: str, group: str, found: Manifest) -> Migrated:
    """An object of a kind that is not migrated, as it is; or why it cannot be one."""
    known = {name.lower(): name for name in GROUPS}
    like = difflib.get_close_matches(kind.lower(), known, n=1, cutoff=LEAST_LIKENESS)
    remarks: Sequence[Remark] = ()
    failed = None
    if kind in REFUSED:
        failed = Remark("kind", REFUSED[kind])
    elif kind in GROUPS and group != GROUPS[kind]:
        version = found.get("apiVersion") or "none"
        failed = Remark("apiVersion", f"{version} has no {kind}: the group is {GROUPS[kind]}")
    elif like and kind not in GROUPS:
        failed = Remark("kind", f"{kind} is not known: write {known[like[0]]}, if it is one")
    elif kind != names.KIND:
        text = "is none that is migrated: the object is written as it is"
        if "etcd" in _name(found):
            text += ". No ElasticPyTorchJob needs an etcd: leave it out, unless others use it"
        remarks = [Remark("kind", text)]
    return Migrated(title, [] if failed else [found], remarks, failed)


def _attempt(title: str, path: str, form: str, migrate: Callable[[Remarks], Documents]) -> Migrated:
    remarks = Remarks()
    documents: Documents = ()
    failed: Remark | None = None
    try:
        documents = migrate(remarks)
    except CannotMigrate as error:
        failed = error.remark
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        failed = Remark(path, f"does not have the form of {form}: {error}")
    return Migrated(title, documents, tuple(remarks.found), failed)


def _refuse_placeholders(found: Manifest) -> None:
    """Refuses a template of `envsubst`, as Kubernetes would refuse its numbers and names."""
    if places := dict(_placeholders("", found)):
        path, one = next(iter(places.values())), len(places) == 1
        what, more = ("is a placeholder", "it") if one else ("are placeholders", "them")
        text = f"{listed(sorted(places))} {what}: fill {more} in first"
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
