"""Reads single fields of a job's manifest: a value of the wrong type or out of bounds is refused with the field's path."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

MAX_INTEGER = 2**31 - 1  # of the schema's int32
MAX_WORDS = 300  # of a fault: it may quote what cannot be read


class InvalidJob(ValueError):
    """A job that cannot be carried out as written.

    Attributes:
        path: the field at fault, as `kubectl explain` names it, such as `spec.minReplicas`.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path

    def without_trace(self) -> Self:
        """The same, to be kept: a trace would keep all that the functions had in their hands, and so the whole job."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Has whatever goes wrong while a part of a job is read refuse the job, with the path of that part.

    A schema that leaves fields open lets through any JSON, and stored jobs may be older than a rule.

    Raises:
        InvalidJob: instead of any other exception.
    """
    try:
        yield
    except InvalidJob:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as fault:
        raise InvalidJob(path, f"the operator cannot read it: {fault!r}"[:MAX_WORDS]) from fault


def read_object(fields: Mapping[str, Any], name: str, path: str = "spec") -> Mapping[str, Any]:
    """An object, empty if it is absent.

    Raises:
        InvalidJob: it is something else.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidJob(f"{path}.{name}", f"must be an object, not {value!r}")
    return value or {}


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
    fields: Mapping[str, Any], name: str, default: int | None, path: str = "spec", *, least: int = 1, most: int = MAX_INTEGER
) -> int | None:
    """A whole number.

    Args:
        fields: the object that holds the field.
        name: the field's name.
        default: if the field is absent.
        path: of the object, for the error.
        least: the smallest number that is allowed.
        most: the largest.

    Raises:
        InvalidJob: it is no whole number, or out of bounds.
    """
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidJob(f"{path}.{name}", f"must be a whole number, not {value!r}")
    if value < least:
        raise InvalidJob(f"{path}.{name}", f"must be greater than or equal to {least}, not {value}")
    if value > most:
        raise InvalidJob(f"{path}.{name}", f"must be less than or equal to {most}, not {value}"[:MAX_WORDS])
    return value
