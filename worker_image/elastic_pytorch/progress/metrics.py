"""Metrics that a script reports beside its loss, for a job's status."""

import math
import re
from collections.abc import Iterable, Mapping

MAX_METRICS = 16  # of a job
MAX_NAME_CHARACTERS = 63
# The operator has a copy in agents/heartbeat.py.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]{0,62}")

# Those that were last reported are last.
Metrics = tuple[tuple[str, float], ...]


def read_metrics(metrics: object) -> dict[str, float]:
    """The finite metrics of a report: one that has become NaN must not end a training.

    Raises:
        ValueError: they cannot be reported; it names the metric and what to change.
    """
    if not isinstance(metrics, Mapping):
        raise ValueError(
            f"metrics must be a mapping from names to numbers, not {type(metrics).__name__}"
        )
    if len(metrics) > MAX_METRICS:
        raise ValueError(f"metrics has {len(metrics)} entries: report at most {MAX_METRICS}")
    for name in metrics:
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            rule = (
                f"1 to {MAX_NAME_CHARACTERS} letters, digits, and any of _ . / @ - after the first"
            )
            raise ValueError(f"metrics has the name {name!r:.80}: use {rule}, such as val/accuracy")
    values = {name: _value(name, value) for name, value in metrics.items()}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def merge_metrics(before: Metrics, newer: Mapping[str, float]) -> Metrics:
    """The newest value of each metric, at most `MAX_METRICS` of them."""
    kept: Iterable[tuple[str, float]] = (metric for metric in before if metric[0] not in newer)
    return (*kept, *newer.items())[-MAX_METRICS:]


def _value(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(
            f"metrics[{name!r}] must be a number that float() takes: {error}"
        ) from error
