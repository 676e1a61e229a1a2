"""Outputs that pages print are what the product's own functions make of the same facts."""

import re
from dataclasses import replace

import pytest
from elastic_pytorch_client.reading.goodput import Goodput
from elastic_pytorch_client.views.status_view import describe_goodput
from elastic_pytorch_operator.model.observed import Place, PlaceKind
from elastic_pytorch_operator.planning.failures.hang_culprit import find_culprits
from elastic_pytorch_operator.planning.reporting.events import News, record_events
from elastic_pytorch_operator.planning.reporting.interruption import Interruption

from tests.documentation import found_in
from tests.faults import assert_none
from tests.operator.builders import NOW, a_job, a_round, a_target, observed
from tests.paths import ROOT

DOCS = ROOT / "docs"
EVENT = re.compile(
    r"^ +(?P<type>Normal|Warning) +(?P<reason>\w+) +\S+ +(?:\S+/operator +)?(?P<note>.+)$",
    re.MULTILINE,
)
ROUND = re.compile(
    r"Round (?P<number>\d+), (?:(?P<before>\d+) -> )?(?P<size>\d+) workers: (?P<cause>.+)"
)
RESUMED = re.compile(
    r"Training resumed with (?P<size>\d+) workers (?P<seconds>[\d.]+) s after (?P<cause>\w+)(?:; "
    r"(?P<lost>\d+) steps? repeated)?"
)


def news_in(event: re.Match[str]) -> tuple[int, News] | None:
    """The workers that the group had before a note, and what is new; None: the job ends."""
    if found := ROUND.fullmatch(event["note"]):
        declared = a_round(*range(int(found["size"])), number=int(found["number"]))
        return int(found["before"] or found["size"]), News(
            declared=replace(declared, reason=event["reason"], cause=found["cause"])
        )
    if found := RESUMED.fullmatch(event["note"]):
        lost = int(found["lost"] or 0)
        resumed = Interruption(
            2,
            found["cause"],
            NOW,
            seconds=float(found["seconds"]),
            steps_lost=lost,
            size=int(found["size"]),
        )
        return int(found["size"]), News(resumed=resumed)
    return None


def is_recorded(event: re.Match[str]) -> bool:
    """Whether the operator records an event of these words for the facts in them."""
    found = news_in(event)
    if found is None:
        return event["reason"].startswith("Job")
    before, news = found
    group = a_round(*range(before)) if before else None
    (made,) = record_events(a_job(), a_target(a_job()), observed(round=group), news)
    return ("Warning" if made.warning else "Normal", made.reason, made.note) == (
        event["type"],
        event["reason"],
        event["note"],
    )


def test_events_are_what_the_operator_records() -> None:
    events = list(found_in(sorted(DOCS.rglob("*.md")), EVENT))
    assert len(events) >= 5
    assert_none(
        f"{place}: {event[0].strip()}" for _, place, event in events if not is_recorded(event)
    )


def where_the_ranks_stand() -> str:
    waits = Place(PlaceKind.COLLECTIVE, "all_reduce")
    return find_culprits(
        {0: waits, 1: waits, 2: Place(PlaceKind.DATA_LOADER, frame="train.py:41 load")}
    ).text


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        (
            "use/observability.md",
            describe_goodput(
                Goodput({"Training": 974, "Starting": 16, "Recovering": 7, "Repeating": 3})
            ),
        ),
        ("internals/rounds.md", where_the_ranks_stand()),
    ],
)
def test_line_is_what_the_product_prints(page: str, printed: str) -> None:
    assert printed in (line.strip() for line in (DOCS / page).read_text().splitlines())
