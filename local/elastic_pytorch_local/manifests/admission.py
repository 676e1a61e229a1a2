"""Judges a job's manifest as the API server and the operator would, in the same order."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import kubernetes.client
from elastic_pytorch_operator.spec.job import Job, parse_job
from elastic_pytorch_operator.spec.job_size import check_size
from elastic_pytorch_operator.spec.schema.validator import Check, check_job, compiled

ANY = {"x-kubernetes-preserve-unknown-fields": True}
SCALARS = {"str": "string", "int": "integer", "bool": "boolean"}
# The client has Quantities, such as `cpu: 4`, as text, but they may be numbers.
QUANTITIES = ("limits", "requests", "overhead", "sizeLimit", "divisor")
_CONTAINER = re.compile(r"(?:List|list)\[(.+)\]|(?:Dict\[str, |dict\(str, )(.+)[\])]")


def check_model(value: object, type_: str, path: str = "") -> None:
    """Compares a value with a model of the client, in which null is as good as absent."""
    if value is not None:
        _compiled(type_)(value, path, True)


@cache
def _compiled(type_: str) -> Check:
    return compiled(_schema_of(type_))


@cache
def _schema_of(type_: str) -> Mapping[str, Any]:
    if type_ in SCALARS:
        return {"type": SCALARS[type_], "nullable": True}
    if found := _CONTAINER.fullmatch(type_):
        if found[1]:
            return {"type": "array", "nullable": True, "items": _schema_of(found[1])}
        return {"type": "object", "nullable": True, "additionalProperties": _schema_of(found[2])}
    if (model := getattr(kubernetes.client, type_, None)) is None:
        return ANY
    fields = model.attribute_map.items()
    types = {name: model.openapi_types[attribute] for attribute, name in fields}
    for name in set(QUANTITIES) & set(types):
        types[name] = re.sub(r"\bstr\b(?!,)", "object", types[name])
    schemas = {name: _schema_of(of_field) for name, of_field in types.items()}
    return {"type": "object", "nullable": True, "properties": schemas}


def check_migrated(manifest: dict[str, Any]) -> None:
    """Checks a job of `kubectl epj migrate`, which has no name of an API server yet."""
    unnamed = {"name": "unnamed", "namespace": "default", "uid": "none"}
    admit({**manifest, "metadata": unnamed | manifest["metadata"]})


def admit(manifest: dict[str, Any]) -> Job:
    """Reads a job as a cluster would; raises InvalidJob for the first bad field, with the fix."""
    check_size(manifest, "the job")
    check_model(manifest["metadata"], "V1ObjectMeta", "metadata")
    check_job(manifest, strict=True)
    spec = manifest["spec"]
    check_model(spec["template"], "V1PodTemplateSpec", "spec.template")
    for number, claim in enumerate(spec.get("sharedVolumeClaims") or ()):
        path = f"spec.sharedVolumeClaims[{number}].spec"
        check_model(claim["spec"], "V1PersistentVolumeClaimSpec", path)
    return parse_job(manifest)
