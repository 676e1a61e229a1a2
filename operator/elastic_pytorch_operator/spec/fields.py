"""Reads single fields of a job's manifest: a value of the wrong type or out of bounds is refused with the field's path."""

from collections.abc import Mapping
from typing import Any


class InvalidJob(ValueError):
    """A job that cannot be carried out as written.

    Attributes:
        path: the field at fault, as `kubectl explain` names it, such as `spec.minReplicas`.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


def read_boolean(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """A field of the spec that is true or false.

    Raises:
        InvalidJob: it is neither.
    """
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidJob(f"spec.{name}", f"must be true or false, not {value!r}")
    return value


def read_integer(
    fields: Mapping[str, Any], name: str, default: int | None, path: str = "spec", *, least: int = 1
) -> int | None:
    """A whole number.

    Args:
        fields: the object that holds the field.
        name: the field's name.
        default: if the field is absent.
        path: of the object, for the error.
        least: the smallest number that is allowed.

    Raises:
        InvalidJob: it is no whole number, or less than `least`.
    """
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidJob(f"{path}.{name}", f"must be a whole number, not {value!r}")
    if value < least:
        raise InvalidJob(f"{path}.{name}", f"must be greater than or equal to {least}, not {value}")
    return value


def read_number(fields: Mapping[str, Any], name: str, default: float, path: str, *, least: float, most: float) -> float:
    """A number that need not be whole.

    Args:
        fields: the object that holds the field.
        name: the field's name.
        default: if the field is absent.
        path: of the object, for the error.
        least: the smallest number that is allowed.
        most: the largest.

    Raises:
        InvalidJob: it is no number, or out of bounds.
    """
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidJob(f"{path}.{name}", f"must be a number from {least:g} to {most:g}, not {value!r}")
    return float(value)
