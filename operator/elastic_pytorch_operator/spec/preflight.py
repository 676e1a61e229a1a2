"""What a worker does before it joins: `preflight`, the check of its node, or `prepare`, the set-up of its script."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.spec.fields import InvalidJob, read_integer

PATH = "spec.preflight"
DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS = 20, 5, 600
DEFAULT_SLOWDOWN, LEAST_SLOWDOWN, MOST_SLOWDOWN = 200, 110, 10_000  # percent
PREPARE_PATH = "spec.prepare"
DEFAULT_PREPARE_SECONDS, MOST_PREPARE_SECONDS = 1800, 86_400


@dataclass(frozen=True, slots=True)
class PreflightPolicy:
    """How nodes are checked.

    Attributes:
        seconds: how long one check may take.
        max_slowdown_percent: a node that takes more than that of the median of all is left out.
    """

    seconds: int = DEFAULT_SECONDS
    max_slowdown_percent: int = DEFAULT_SLOWDOWN


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
    seconds = read_integer(preflight, "seconds", DEFAULT_SECONDS, PATH, least=LEAST_SECONDS, most=MOST_SECONDS)
    name = "maxSlowdownPercent"
    slowdown = read_integer(preflight, name, DEFAULT_SLOWDOWN, PATH, least=LEAST_SLOWDOWN, most=MOST_SLOWDOWN)
    return PreflightPolicy(seconds or DEFAULT_SECONDS, slowdown or DEFAULT_SLOWDOWN)


def read_prepare_seconds(spec: Mapping[str, Any]) -> int:
    """Reads `prepare`: how long the set-up of a script may take, seconds; 0: a script starts when its group exists.

    Args:
        spec: of the job.

    Raises:
        InvalidJob: a field is out of bounds.
    """
    prepare = spec.get("prepare")
    if prepare is None:
        return 0
    if not isinstance(prepare, Mapping):
        raise InvalidJob(PREPARE_PATH, "must be an object, such as {timeoutSeconds: 1800}")
    return (
        read_integer(prepare, "timeoutSeconds", DEFAULT_PREPARE_SECONDS, PREPARE_PATH, least=1, most=MOST_PREPARE_SECONDS)
        or DEFAULT_PREPARE_SECONDS
    )
