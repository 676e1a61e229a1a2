"""What the API server and the operator would say of a job's manifest, in the same order."""

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
# Quantities, such as `cpu: 4`, are text to the client, and may be written as numbers.
QUANTITIES = ("limits", "requests", "overhead", "sizeLimit", "divisor")
_CONTAINER = re.compile(r"(?:List|list)\[(.+)\]|(?:Dict\[str, |dict\(str, )(.+)[\])]")


def check_model(value: object, type_: str, path: str = "") -> None:
    """Compares a value with a model of the client; null is as good as absent.

    Raises:
        InvalidJob: for the first field that the model does not have, or that is of another type; it
            says what to write.
    """
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
    types = {
        name: model.openapi_types[attribute] for attribute, name in model.attribute_map.items()
    }
    types |= {
        name: re.sub(r"\bstr\b(?!,)", "object", types[name]) for name in QUANTITIES if name in types
    }
    fields = {name: _schema_of(of_field) for name, of_field in types.items()}
    return {"type": "object", "nullable": True, "properties": fields}


def check_migrated(manifest: dict[str, Any]) -> None:
    """Checks a job that no API server has named yet, for `kubectl epj migrate`.

    Raises:
        InvalidJob: as `admit`.
    """
    admit(
        {
            **manifest,
            "metadata": {"name": "unnamed", "namespace": "default", "uid": "none"}
            | manifest["metadata"],
        }
    )


def admit(manifest: dict[str, Any]) -> Job:
    """Reads a job as a cluster would.

    Raises:
        InvalidJob: a field is unknown, of the wrong type or out of bounds; it names the first such
            field and the fix.
    """
    check_size(manifest, "the job")
    check_model(manifest["metadata"], "V1ObjectMeta", "metadata")
    check_job(manifest, strict=True)
    spec = manifest["spec"]
    check_model(spec["template"], "V1PodTemplateSpec", "spec.template")
    for number, claim in enumerate(spec.get("sharedVolumeClaims") or ()):
        check_model(
            claim["spec"], "V1PersistentVolumeClaimSpec", f"spec.sharedVolumeClaims[{number}].spec"
        )
    return parse_job(manifest)
