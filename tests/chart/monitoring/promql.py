"""What an expression of PromQL asks for, and which series there are."""

import re

from elastic_pytorch_operator.monitoring.job_counts import ACTIVITIES, FAILURE_KINDS, ROUND_REASONS
from elastic_pytorch_operator.monitoring.job_gauges import JOB_STATES
from elastic_pytorch_operator.monitoring.metrics import Metrics

FAMILIES = {family.name: family for family in Metrics().families}
# The Prometheus client's own, with their kinds.
PROCESS = {"process_resident_memory_bytes": "gauge", "process_cpu_seconds_total": "counter"}
TARGET_LABELS = {"job", "pod", "namespace", "instance"}

_WORDS = {
    *("absent", "max", "min", "sum", "by", "on", "and", "rate", "increase", "changes"),
    *("histogram_quantile", "time", "Inf"),
}
_SELECTOR = re.compile(r"([A-Za-z_:]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_VALUES = {
    ("elastic_pytorch_rounds_declared_total", "reason"): set(ROUND_REASONS),
    ("elastic_pytorch_failures_total", "kind"): set(FAILURE_KINDS),
    ("elastic_pytorch_jobs", "state"): set(JOB_STATES),
    ("elastic_pytorch_spent_seconds_total", "activity"): set(ACTIVITIES),
    ("elastic_pytorch_spent_process_seconds_total", "activity"): set(ACTIVITIES),
}


def grouped_by(expression: str) -> set[str]:
    """The labels that the expression groups or matches by."""
    return {label for inner in _GROUPING.findall(expression) for label in re.findall(r"\w+", inner)}


def problems_of(expression: str) -> list[str]:
    """What the operator does not export, and counters whose growth no panel shows."""
    plain = _GROUPING.sub("", re.sub(r"\[[^]]*\]", "", expression))
    asked = [(name, inner) for name, inner in _SELECTOR.findall(plain) if name not in _WORDS]
    found = [] if asked else ["asks for nothing"]
    if expression.count("(") != expression.count(")"):
        found.append("parentheses do not match")
    labels = set(TARGET_LABELS)
    for name, inner in asked:
        family = FAMILIES.get(name) or FAMILIES.get(name.removesuffix("_bucket"))
        kind = family.kind if family else PROCESS.get(name)
        if kind is None or (kind == "histogram") is not name.endswith("_bucket"):
            found.append(f"there is no {name}")
            continue
        known = {
            *(family.labels if family else ()),
            *TARGET_LABELS,
            *({"le"} if kind == "histogram" else ()),
        }
        labels |= known
        for label, _, value in _MATCHER.findall(inner):
            if label not in known:
                found.append(f"{name} has no label {label}")
            if (
                (values := _VALUES.get((name, label)))
                and "$" not in value
                and not set(value.split("|")) <= values
            ):
                found.append(f"{name} has no {label} {value}")
        if kind in ("counter", "histogram") and not re.search(
            rf"(rate|increase)\({name}", expression
        ):
            found.append(f"{name} only ever grows")
    return found + [
        f"no series has the label {label}" for label in sorted(grouped_by(expression) - labels)
    ]
