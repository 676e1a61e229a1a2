"""How long workers that do not report may be alive, as tables in docs/internals/architecture.md."""

import math

from elastic_pytorch_operator.planning.workers.silence import ARRIVALS, CROWD, LATE, NEW_LEADER, TABLE, Delay, Wait
from packages import replace_between

BEGIN, END = "<!-- silence: written by `make docs` -->\n", "<!-- end of silence -->\n"


def page(text: str) -> str:
    """Returns a page with the tables between its two markers."""
    head = "| state of the worker and its group | counted from | alive for at least | at most | ends early when |"
    waits = [head, "|---|---|---|---|---|", *map(wait, TABLE)]
    head = "| what delays reports | a new leader decides nothing for at most | the loss of a worker comes later by at most |"
    delays = [head, "|---|---|---|", *map(delay, (ARRIVALS, CROWD, LATE))]
    return replace_between(text, BEGIN, END, "\n".join([*waits, "", *delays, ""]))


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
