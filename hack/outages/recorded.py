"""When servers were down: StepFun's fault trace, or a draw from a seed by that trace's facts.

The trace is fault_trace.json of github.com/stepfun-ai/InfiniteHBD-Trace (commit 7aacdc8, Apache
License 2.0, https://arxiv.org/abs/2502.03885): 584 faults of 400 GPU servers in 349 days. The facts
below were counted in it. Each fault counts as an outage of its server.
"""

import json
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

Outage = tuple[float, float]  # begin and end, in days
Server = Sequence[Outage]

DAYS = 349.0
# Servers without an outage, with one, ...
SERVERS_BY_OUTAGES = (169, 96, 50, 31, 22, 10, 11, 5, 5, 0, 0, 0, 0, 0, 1)
AT = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
# The number of the outages that began in each twelfth of the days, and quantiles of their hours.
# Late ones end with the trace.
BEGUN = (
    (11, (2.8, 6.7, 32.6, 32.6, 531.5, 649.9, 1202.6, 1663.4, 2124.1)),
    (29, (0.0, 14.0, 40.7, 84.4, 125.6, 216.1, 941.8, 2005.3, 2041.9)),
    (120, (0.0, 1.8, 9.0, 48.7, 95.4, 343.8, 750.5, 1062.2, 1387.6)),
    (38, (0.9, 5.3, 20.4, 72.1, 110.4, 173.3, 328.9, 512.9, 629.2)),
    (42, (0.0, 0.0, 0.6, 14.3, 25.4, 71.1, 121.8, 195.4, 239.3)),
    (73, (0.1, 2.6, 27.7, 58.6, 59.7, 98.1, 234.1, 270.0, 722.3)),
    (26, (0.2, 19.5, 42.8, 173.3, 232.9, 424.0, 1717.3, 2087.0, 3143.1)),
    (33, (0.3, 4.2, 18.2, 39.7, 64.0, 136.4, 835.6, 892.1, 1619.4)),
    (59, (0.2, 1.0, 9.4, 16.1, 19.9, 39.2, 77.4, 220.6, 2206.8)),
    (64, (0.0, 0.2, 6.7, 22.4, 37.5, 52.5, 132.4, 208.2, 1079.3)),
    (32, (0.2, 0.2, 1.3, 4.2, 20.9, 51.0, 79.8, 184.5, 329.4)),
    (55, (0.2, 0.3, 4.0, 26.1, 34.3, 54.4, 81.0, 106.3, 219.1)),
)


def read(trace: Path) -> list[Server]:
    begun = dict[tuple[str, str], list[float]]()
    found = dict[str, list[Outage]]()
    for event in json.loads(trace.read_text()):
        server, day = str(event["node_id"]), float(event["event_time"])
        open_since = begun.setdefault((server, json.dumps(event["fault_type"])), [])
        if event["event_type"] == "fault_start":
            open_since.append(day)
        else:
            found.setdefault(server, []).append((open_since.pop(0), min(day, DAYS)))
    never_down = sum(SERVERS_BY_OUTAGES) - len(found)
    return [*map(merged, found.values()), *([] for _ in range(never_down))]


def draw(chance: random.Random) -> list[Server]:
    outages = [
        _outage((number + chance.random()) / len(BEGUN), hours)
        for number, (count, quantiles) in enumerate(BEGUN)
        for hours in _lengths(count, quantiles)
    ]
    chance.shuffle(outages)
    drawn = iter(outages)
    counts = [count for count, servers in enumerate(SERVERS_BY_OUTAGES) for _ in range(servers)]
    return [merged(next(drawn) for _ in range(count)) for count in counts]


def merged(outages: Iterable[Outage]) -> list[Outage]:
    found = list[Outage]()
    for begin, end in sorted(outages):
        if found and begin <= found[-1][1]:
            first, last = found.pop()
            found.append((first, max(last, end)))
        else:
            found.append((begin, end))
    return found


def _lengths(count: int, quantiles: Sequence[float]) -> Iterator[float]:
    for number in range(count):
        share = (number + 0.5) / count
        above = bisect_right(AT, share)
        part = (share - AT[above - 1]) / (AT[above] - AT[above - 1])
        yield quantiles[above - 1] + part * (quantiles[above] - quantiles[above - 1])


def _outage(begin: float, hours: float) -> Outage:
    """An outage that begins after a share of the year, or ends with the year."""
    begins = min(begin * DAYS, DAYS - hours / 24)
    return begins, begins + hours / 24
