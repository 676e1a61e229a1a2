"""The rules of planning that are tables: of workers that do not report, and of what speaks against nodes."""

import math

from elastic_pytorch_operator.planning.nodes.objections import TABLE as CAUSES
from elastic_pytorch_operator.planning.nodes.objections import Cause, Weight
from elastic_pytorch_operator.planning.workers.silence import ARRIVALS, CROWD, LATE, NEW_LEADER, TABLE, Delay, Wait
from measure import markdown

NEW_PODS = {
    Weight.ANY: "go there",
    Weight.LAST: "go there if no other node takes them",
    Weight.DOUBTFUL: "go there if no other node has room",
    Weight.NEVER: "never go there",
}


def silence(text: str) -> str:
    """Returns a page with the tables of silent workers between its two markers."""
    head = "| state of the worker and its group | counted from | alive for at least | at most | ends early when |"
    waits = [head, "|---|---|---|---|---|", *map(wait, TABLE)]
    head = "| what delays reports | a new leader decides nothing for at most | the loss of a worker comes later by at most |"
    delays = [head, "|---|---|---|", *map(delay, (ARRIVALS, CROWD, LATE))]
    return _between(text, "silence", [*waits, "", *delays])


def objections(text: str) -> str:
    """Returns a page with the table of what speaks against a node between its two markers."""
    head = "| what speaks against a node | for at most | ends before when | new pods | workers there |"
    return _between(text, "objections", [head, "|---|---|---|---|---|", *map(objection, CAUSES)])


def _between(text: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- end of {name} -->\n"
    return markdown.page(text, begin, end, "\n".join(["", *lines, "", ""]))


def objection(row: Cause) -> str:
    most = f"{seconds(row.at_most_seconds)} from {row.since}" if row.since else seconds(row.at_most_seconds)
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
