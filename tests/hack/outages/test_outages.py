"""The year of outages: read or drawn, what a policy makes of it, and the figures of the page."""

import json
import random
import re
import statistics
from pathlib import Path

import pytest
from outages import __main__ as program
from outages.policies import DAY_SECONDS, Course, Policy, Training, course, trained_share
from outages.recorded import DAYS, draw, merged, read

from tests.paths import ROOT

IDEAL = Training(
    set_up_seconds=0, checkpoint_seconds=100, step_seconds=0, connect_seconds=0, smaller=1
)
FIXED, ELASTIC = Policy("fixed", 0), Policy("elastic", 0, elastic=True)
# Of two nodes, one is away from 1,000 to 2,000 s of 4,000 s.
AWAY: Course = ((0, 2), (1_000, 1), (2_000, 2), (4_000, 2))
WITH_SPARE: Course = tuple((at, up + 1) for at, up in AWAY)
CASES = [
    ("nothing happens", 2, 2, ((0, 2), (4_000, 2)), FIXED, IDEAL, 1),
    ("it waits", 2, 2, AWAY, FIXED, IDEAL, 3 / 4),
    ("it shrinks", 2, 2, AWAY, ELASTIC, IDEAL, 7 / 8),
    (
        "a smaller group has less speed",
        2,
        2,
        AWAY,
        ELASTIC,
        Training(0, 100, 0, 0, 0.8),
        1 - 0.6 / 4,
    ),
    ("below the fewest it waits", 2, 2, AWAY, ELASTIC, Training(0, 100, 0, 0, 1, 0.9), 3 / 4),
    ("a spare takes over, and its hours count", 2, 3, WITH_SPARE, FIXED, IDEAL, 2 / 3),
    (
        "it stands still at a loss",
        2,
        2,
        AWAY,
        Policy("", 100, elastic=True),
        IDEAL,
        7 / 8 - 100 / 8_000,
    ),
    (
        "it stands still at growth",
        2,
        2,
        AWAY,
        Policy("", 0, 100, elastic=True),
        IDEAL,
        7 / 8 - 100 / 4_000,
    ),
    (
        "the script and the GPUs start twice",
        *(2, 2, AWAY, Policy("", 0, on_cpus=True, set_up=True, elastic=True)),
        *(Training(60, 100, 0, 40, 1), 7 / 8 - 100 / 8_000 - 100 / 4_000),
    ),
    (
        "it repeats what no checkpoint has",
        2,
        2,
        AWAY,
        Policy("", 0, repeats=True),
        Training(0, 300, 0, 0),
        3 / 4 - 1 / 40,
    ),
    ("it repeats a step", 2, 2, AWAY, FIXED, Training(0, 100, 40, 0), 3 / 4 - 0.01),
    ("saves take time", 2, 2, AWAY, Policy("", 0, saving=0.1), IDEAL, 0.9 * 3 / 4),
    (
        "two of three chances that a loss hits the group",
        2,
        3,
        WITH_SPARE,
        Policy("", 300),
        IDEAL,
        2 / 3 - 200 * 2 / 12_000,
    ),
]


@pytest.mark.parametrize(
    ("nodes", "held", "times", "policy", "training", "share"),
    [case[1:] for case in CASES],
    ids=[c[0] for c in CASES],
)
def test_a_policy_trains_this_share(
    nodes: int, held: int, times: Course, policy: Policy, training: Training, share: float
) -> None:
    assert trained_share(nodes, held, times, policy, training) == pytest.approx(share)


REPLAYED = Training(300, 1800, 0.2, 0, 1)
LIBRARY = Policy("", 0.57, 0.34, elastic=True)
PLAIN = Policy("", 0.52, 0.42, set_up=True, repeats=True, elastic=True)
# What docs/evidence/benchmarks.md compares with a replay on pods: 64 nodes, of which one is lost.
EVENTS = [
    ("library", ((0, 64), (90_000, 63), (90_304, 64), (180_000, 64)), LIBRARY, 5.9),
    ("spare", ((0, 65), (90_000, 64), (90_304, 65), (180_000, 65)), LIBRARY, 0.76),
    ("plain", ((0, 64), (90_900, 63), (90_904, 64), (180_000, 64)), PLAIN, 1_205),
]


@pytest.mark.parametrize(
    ("times", "policy", "seconds"), [event[1:] for event in EVENTS], ids=[e[0] for e in EVENTS]
)
def test_an_event_costs_what_the_page_says(times: Course, policy: Policy, seconds: float) -> None:
    assert 180_000 * (1 - trained_share(64, 64, times, policy, REPLAYED)) == pytest.approx(
        seconds, rel=0.02
    )


def test_a_course_counts_the_servers_that_are_up() -> None:
    times = course([[(1.0, 2.0)], [(1.5, 3.0)], []])
    found = [(at / DAY_SECONDS, up) for at, up in times]
    assert found == [(0, 3), (1, 2), (1.5, 1), (2, 2), (3, 3), (DAYS, 3)]


def test_outages_of_a_server_that_overlap_are_one() -> None:
    assert merged([(3, 4), (1, 2), (1.5, 2.5), (2.5, 2.6)]) == [(1, 2.6), (3, 4)]


def test_a_trace_is_read_by_server_and_fault(tmp_path: Path) -> None:
    def event(server: str, day: float, kind: str, fault: str) -> dict[str, object]:
        return {
            "node_id": server,
            "event_time": day,
            "event_type": f"fault_{kind}",
            "fault_type": {"Class": fault},
        }

    events = [
        event("a", 1, "start", "GPU"),
        event("a", 2, "start", "NIC"),
        event("b", 3, "start", "GPU"),
    ]
    events += [
        event("a", 4, "end", "NIC"),
        event("a", 5, "end", "GPU"),
        event("b", 6, "end", "GPU"),
    ]
    (tmp_path / "trace.json").write_text(json.dumps(events))
    first, second, *others = read(tmp_path / "trace.json")
    assert (first, second, others) == ([(1, 5)], [(3, 6)], [[]] * 398)


def test_a_drawn_year_has_the_facts_of_the_recorded_one() -> None:
    servers = draw(random.Random(1))
    hours = [24 * (end - begin) for server in servers for begin, end in server]
    assert (len(servers), sum(not server for server in servers)) == (400, 169)
    assert len(hours) == pytest.approx(582, rel=0.05)  # as some overlap
    assert statistics.median(hours) == pytest.approx(20.4, rel=0.1)
    assert sum(hours) / (400 * 24 * DAYS) == pytest.approx(0.0232, rel=0.1)


def test_the_page_has_the_figures_that_a_drawn_year_confirms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page's figures are those of the trace, which is not in the repository.

    A drawn year differs by its draw.
    """
    page = (ROOT / "docs" / "evidence" / "benchmarks.md").read_text()
    program.main(["--draws", "40"])
    drawn, recorded = figures(capsys.readouterr().out), figures(page)
    assert [title for title, _ in drawn] == [title for title, _ in recorded]
    assert not [
        (title, those, cells)
        for (title, those), (_, cells) in zip(recorded, drawn, strict=True)
        if any(abs(a - b) > 4 for a, b in zip(those, cells, strict=True))
    ]


def figures(text: str) -> list[tuple[str, list[float]]]:
    """The percentages of each row of a table that has only such, with its first cell."""
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return [
        (row[0], [float(cell[:-2]) for cell in row[1:]])
        for row in rows
        if all(re.fullmatch(r"[\d.]+ %", cell) for cell in row[1:])
    ]
