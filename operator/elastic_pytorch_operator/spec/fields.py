"""What is wrong with a field of a manifest, in words that name it and the remedy."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

MAX_WORDS = 300  # of a fault, which may quote what cannot be read
MAX_SHOWN = 100  # characters of a wrong value
_NUMBER = re.compile(r"-?\d+")


class InvalidJob(ValueError):
    """A job that cannot be carried out; `path` is the field at fault, such as `spec.replicas`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path

    def without_trace(self) -> Self:
        """A trace would keep all locals, and so the whole job."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


@contextmanager
def reading_spec() -> Iterator[None]:
    """Raises only InvalidJob, whatever goes wrong while a spec is read."""
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
        raise InvalidJob("spec", f"the operator cannot read it: {fault!r}"[:MAX_WORDS]) from fault


def suggest(name: str, known: Iterable[str], words: str = "did you mean {}?") -> str:
    """The end of a sentence that names the nearest known word; empty if none is near."""
    lowered = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"; {words.format(lowered[near[0]])}" if near else ""


def check_names(value: Iterable[object], known: Iterable[str], path: str) -> None:
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
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def must_be(wanted: str, value: object) -> str:
    if wanted == "a string" and isinstance(value, bool | int | float):
        return f'must be a string, not {shown(value)}: put it in quotes, "{shown(value)}"'
    if wanted == "true or false":
        quoted = value in ("true", "false")
    else:
        quoted = isinstance(value, str) and _NUMBER.fullmatch(value) is not None
    return f"must be {wanted}, not {shown(value)}{': take the quotes away' if quoted else ''}"
