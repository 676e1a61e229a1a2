"""What is wrong with a field of a manifest, in words that name it and the remedy."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

MAX_WORDS = 300  # of a fault: it may quote what cannot be read
MAX_SHOWN = 100  # characters of a value that is wrong
_NUMBER = re.compile(r"-?\d+")


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

    A schema that leaves fields open lets through any JSON, and stored jobs may be older than a
    rule.

    Raises:
        InvalidJob: instead of any other exception.
    """
    try:
        yield
    except InvalidJob:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as fault:
        raise InvalidJob(path, f"the operator cannot read it: {fault!r}"[:MAX_WORDS]) from fault


def suggest(name: str, known: Iterable[str], words: str = "did you mean {}?") -> str:
    """The end of a sentence that names the known word nearest to one; empty if none is near."""
    lowered = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"; {words.format(lowered[near[0]])}" if near else ""


def check_names(value: Iterable[object], known: Iterable[str], path: str) -> None:
    """Refuses the fields of an object that its kind does not have.

    Raises:
        InvalidJob: for the first of them, with what it was meant to be.
    """
    known = list(known)
    for name in value:
        if not isinstance(name, str):
            raise InvalidJob(path, f"the key {name!r} must be a string: put it in quotes")
        if name not in known:
            raise InvalidJob(
                below(path, name), f"there is no such field{suggest(name, known) or ': remove it'}"
            )


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def shown(value: object) -> str:
    """A value as a sentence quotes it."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = (
        {True: "true", False: "false"}[value]
        if isinstance(value, bool)
        else "null"
        if value is None
        else repr(value)
    )
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def must_be(wanted: str, value: object) -> str:
    """Why a value of another type is refused, and how to write it if a quote too few or too many is the mistake."""
    if wanted == "a string" and isinstance(value, bool | int | float):
        return f'must be a string, not {shown(value)}: put it in quotes, "{shown(value)}"'
    quoted = (
        value in ("true", "false")
        if wanted == "true or false"
        else isinstance(value, str) and _NUMBER.fullmatch(value)
    )
    return f"must be {wanted}, not {shown(value)}{': take the quotes away' if quoted else ''}"
