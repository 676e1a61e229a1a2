"""Blocks of pages from the product's tables: silent workers, nodes, and metrics."""

import math
from collections.abc import Callable, Mapping

from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.planning.nodes.objections import TABLE as CAUSES
from elastic_pytorch_operator.planning.nodes.objections import Cause, Weight
from elastic_pytorch_operator.planning.workers.silence import (
    ARRIVALS,
    CROWD,
    LATE,
    NEW_LEADER,
    TABLE,
    Delay,
    Wait,
)
from measure import markdown

NEW_PODS = {
    Weight.ANY: "go there",
    Weight.LAST: "go there if no other node takes them",
    Weight.DOUBTFUL: "go there if no other node has room",
    Weight.NEVER: "never go there",
}


def silence() -> str:
    head = (
        "| state of the worker and its group | counted from | alive for at least | at most "
        "| ends early when |"
    )
    waits = [head, "|---|---|---|---|---|", *map(wait, TABLE)]
    head = (
        "| what delays reports | a new leader decides nothing for at most "
        "| the loss of a worker comes later by at most |"
    )
    delays = [head, "|---|---|---|", *map(delay, (ARRIVALS, CROWD, LATE))]
    return "\n".join([*waits, "", *delays])


def objections() -> str:
    head = (
        "| what speaks against a node | for at most | ends before when | new pods | workers there |"
    )
    return "\n".join([head, "|---|---|---|---|---|", *map(objection, CAUSES)])


def metrics() -> str:
    items = []
    for family in Metrics().families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        kind = f"{family.kind} by {labels}" if labels else family.kind
        items.append(f"- `{family.name}` ({kind}): {family.text}")
    return "\n".join(items)


# Of pages below docs, by the names in their markers.
BLOCKS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "internals/architecture.md": {"silence": silence},
    "internals/rounds.md": {"objections": objections},
    "reference/metrics.md": {"metrics": metrics},
}


def page(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    for name, block in blocks.items():
        begin, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- end of {name} -->\n"
        text = markdown.page(text, begin, end, f"\n{block()}\n\n")
    return text


def objection(row: Cause) -> str:
    most = seconds(row.at_most_seconds) + (f" from {row.since}" if row.since else "")
    return f"| {row.known} | {most} | {row.ends or '-'} | {NEW_PODS[row.weight]} | {row.workers} |"


def wait(row: Wait) -> str:
    mark = " *" if row.per_heartbeat else ""
    least, most = f"{seconds(row.at_least_seconds)}{mark}", f"{seconds(row.at_most_seconds)}{mark}"
    if row.since == NEW_LEADER:
        least += f", and {seconds(row.arrival_seconds)} after each arrival"
        if row.crowded_seconds != row.arrival_seconds:
            least += f" ({seconds(row.crowded_seconds)} in a crowd)"
    return f"| {row.known} | {row.since} | {least} | {most} | {row.ends or '-'} |"


def delay(row: Delay) -> str:
    return f"| {row.sign} | {seconds(row.undecided_seconds)} | {seconds(row.lost_seconds)} |"


def seconds(value: float) -> str:
    return "no limit" if math.isinf(value) else f"{value:g} s"
