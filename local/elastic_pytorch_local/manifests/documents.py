"""The documents of YAML files, as `kubectl apply` reads them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_client.yaml_text import Loader
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.spec.fields import InvalidJob, reading_spec, suggest
from elastic_pytorch_operator.spec.platform.job_template import (
    PATH,
    over,
    read_template_name,
    titled,
    usable_spec,
)
from elastic_pytorch_operator.spec.schema.validator import check_job

from elastic_pytorch_local.manifests.config_objects import CONFIG_MAP, SECRET


@dataclass(frozen=True, slots=True)
class Documents:
    job: dict[str, Any]  # merged over its template
    config: Sequence[dict[str, Any]] = ()  # ConfigMaps and Secrets, with their namespaces
    others: Sequence[str] = ()  # kind and name of each further object


class _Loader(Loader):
    """Refuses a key that comes twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                where = f"line {key.start_mark.line + 1}"
                what = f"{name} is there twice in the same object: remove one of them"
                raise InvalidJob(where, what)
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_documents(paths: Sequence[Path]) -> Documents:
    """Reads the files of one job, including its template's.

    Raises:
        InvalidJob: there is not exactly one job, or its template is missing, or a document is no
            object of Kubernetes.
    """
    found = [
        document
        for path in paths
        for document in yaml.load_all(path.read_text(), _Loader)
        if document is not None
    ]
    for document in found:
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            what = f"is missing: each document is an object of Kubernetes, such as an {names.KIND}"
            raise InvalidJob("kind", what)
    jobs = [document for document in found if document["kind"] == names.KIND]
    if not jobs:
        meant = suggest(names.KIND, (document["kind"] for document in found), "found only as {}")
        raise InvalidJob("kind", f"the file holds no {names.KIND}{meant}")
    if len(jobs) > 1:
        what = f"there are {len(jobs)} {names.KIND}s: give each a file and a command of its own"
        raise InvalidJob("kind", what)
    (job,) = jobs
    if (version := job.get("apiVersion")) != names.API_VERSION:
        raise InvalidJob("apiVersion", f"must be {names.API_VERSION}, not {version!r}")
    namespace = _metadata(job).setdefault("namespace", "default")
    config = [document for document in found if document["kind"] in (CONFIG_MAP, SECRET)]
    for document in config:
        _metadata(document).setdefault("namespace", namespace)
    templates = [document for document in found if document["kind"] == names.TEMPLATE_KIND]
    others = [document for document in found if document not in (*jobs, *config, *templates)]
    named = [f"{other['kind']} {_metadata(other)['name']}" for other in others]
    return Documents(_with_template(job, templates), config, named)


def _with_template(job: dict[str, Any], templates: Sequence[dict[str, Any]]) -> dict[str, Any]:
    spec = job.get("spec")
    if not isinstance(spec, dict) or (name := read_template_name(spec)) is None:
        return job
    named = (each for each in templates if _metadata(each)["name"] == name)
    found = next(named, None)
    if found is None:
        raise InvalidJob(PATH, f"no file holds {titled(name)}: give its file, too")
    check_job(job, strict=True)
    with reading_spec():
        merged = over(usable_spec(found), spec)
    own = {field: value for field, value in merged.items() if field != "templateRef"}
    return {**job, "spec": own}


def _metadata(document: dict[str, Any]) -> dict[str, Any]:
    metadata, kind = document.setdefault("metadata", {}), document["kind"]
    path = "metadata" if kind == names.KIND else f"{kind}: metadata"
    if not isinstance(metadata, dict):
        raise InvalidJob(path, "must be an object")
    if not metadata.get("name"):
        raise InvalidJob(f"{path}.name", "is missing")
    return metadata
