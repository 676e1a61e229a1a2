"""Kubernetes' own objects by the models of its Python client: unknown fields and wrong types, as the API server refuses them."""

import re
from typing import Any

import kubernetes.client
from elastic_pytorch_operator.spec.fields import InvalidJob

from elastic_pytorch_local.manifests.known_names import below, check_names, must_be

SCALARS = {"str": ("a string", str), "int": ("a whole number", int), "bool": ("true or false", bool)}
# Quantities, such as `cpu: 4`, are text to the client, and may be written as numbers.
QUANTITIES = ("limits", "requests", "overhead", "sizeLimit", "divisor")
_CONTAINER = re.compile(r"(?:List|list)\[(.+)\]|(?:Dict\[str, |dict\(str, )(.+)[\])]")


def check_model(value: object, type_: str, path: str = "") -> None:
    """Compares a value with a model of the client; null is as good as absent.

    Raises:
        InvalidJob: for the first field that the model does not have, or that is of another type; it says what to write.
    """
    if value is None:
        return
    if type_ in SCALARS:
        words, wanted = SCALARS[type_]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise InvalidJob(path, must_be(words, value))
    elif found := _CONTAINER.fullmatch(type_):
        _check_each(value, found[1], found[2], path)
    elif hasattr(kubernetes.client, type_):
        model = getattr(kubernetes.client, type_)
        if not isinstance(value, dict):
            raise InvalidJob(path, must_be("an object", value))
        types: dict[str, str] = {name: model.openapi_types[attribute] for attribute, name in model.attribute_map.items()}
        check_names(value, types, path)
        for name, inner in value.items():
            check_model(inner, _quantities(types[name]) if name in QUANTITIES else types[name], below(path, name))


def _check_each(value: Any, items: str | None, values: str | None, path: str) -> None:
    if items:
        if not isinstance(value, list):
            raise InvalidJob(path, must_be("a list", value))
        for number, item in enumerate(value):
            check_model(item, items, f"{path}[{number}]")
        return
    if not isinstance(value, dict):
        raise InvalidJob(path, must_be("an object", value))
    for name, item in value.items():
        if not isinstance(name, str):
            raise InvalidJob(path, f"the key {name!r} must be a string: put it in quotes")
        check_model(item, values or "object", below(path, name))


def _quantities(type_: str) -> str:
    """The type of a field whose texts are quantities: these may be numbers, so that they are not checked."""
    return re.sub(r"\bstr\b(?!,)", "object", type_)
