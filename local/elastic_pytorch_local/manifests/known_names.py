"""What a misspelt name was meant to be."""

import difflib
import re
from collections.abc import Iterable

from elastic_pytorch_operator.spec.fields import InvalidJob

_NUMBER = re.compile(r"-?\d+")


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
            raise InvalidJob(below(path, name), f"there is no such field{suggest(name, known) or ': remove it'}")


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def must_be(wanted: str, value: object) -> str:
    """Why a value of another type is refused, and how to write it if a quote too few or too many is the mistake."""
    shown = {dict: "an object", list: "a list", bool: str(value).lower()}.get(type(value), repr(value))
    if wanted == "a string" and isinstance(value, bool | int | float):
        return f'must be a string, not {shown}: put it in quotes, "{shown}"'
    quoted = value in ("true", "false") if wanted == "true or false" else isinstance(value, str) and _NUMBER.fullmatch(value)
    return f"must be {wanted}, not {shown}{': take the quotes away' if quoted else ''}"
