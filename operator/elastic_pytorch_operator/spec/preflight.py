"""`preflight`: whether nodes are checked before a group forms, and what counts as too slow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.spec.fields import InvalidJob, read_integer, read_number

PATH = "spec.preflight"
DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS = 20, 5, 600
DEFAULT_SLOWDOWN, LEAST_SLOWDOWN, MOST_SLOWDOWN = 2.0, 1.1, 100.0


@dataclass(frozen=True, slots=True)
class PreflightPolicy:
    """How nodes are checked.

    Attributes:
        seconds: how long one check may take.
        max_slowdown: a node that takes more than this many times the median of all is left out.
    """

    seconds: int = DEFAULT_SECONDS
    max_slowdown: float = DEFAULT_SLOWDOWN


def read_preflight(spec: Mapping[str, Any]) -> PreflightPolicy | None:
    """Reads `preflight`; None: no node is checked.

    Args:
        spec: of the job.

    Raises:
        InvalidJob: a field is out of bounds.
    """
    preflight = spec.get("preflight")
    if preflight is None:
        return None
    if not isinstance(preflight, Mapping):
        raise InvalidJob(PATH, "must be an object, such as {seconds: 20}")
    seconds = read_integer(preflight, "seconds", DEFAULT_SECONDS, PATH, least=LEAST_SECONDS) or DEFAULT_SECONDS
    if seconds > MOST_SECONDS:
        raise InvalidJob(f"{PATH}.seconds", f"must be less than or equal to {MOST_SECONDS}, not {seconds}")
    slowdown = read_number(preflight, "maxSlowdown", DEFAULT_SLOWDOWN, PATH, least=LEAST_SLOWDOWN, most=MOST_SLOWDOWN)
    return PreflightPolicy(seconds, slowdown)
