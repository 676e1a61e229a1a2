import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from elastic_pytorch_operator.cluster.clocks import BOOT_CLOCK, ServerClock, TimeOfDay, boot_seconds

OWN = datetime(2026, 1, 2, 0, 10, tzinfo=UTC)
WARNING = "whose time counts"


@pytest.mark.parametrize(
    ("ahead_seconds", "counts"),
    [
        (0.0, "own"),
        (9.9, "own"),
        (-9.9, "own"),
        (10.1, "server"),
        (-10.1, "server"),
        # A job that began ten minutes ago would exceed a deadline of six hours.
        (86_400.0, "server"),
        (None, "own"),  # the API server has not answered yet
    ],
)
def test_time_of_the_api_server_counts_where_the_clocks_differ(
    ahead_seconds: float | None, counts: str
) -> None:
    server = None if ahead_seconds is None else OWN - timedelta(seconds=ahead_seconds)
    found = TimeOfDay(lambda: server, lambda: OWN)()
    assert found == {"own": OWN, "server": server}[counts]


def test_log_says_once_that_a_clock_is_wrong_and_again_after_it_was_right(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ahead = timedelta(0)
    time_of_day = TimeOfDay(lambda: OWN - ahead, lambda: OWN)
    for seconds, warnings in ((0, 0), (86_400, 1), (86_400, 1), (0, 1), (-3600, 2)):
        ahead = timedelta(seconds=seconds)
        assert time_of_day() in (OWN, OWN - ahead)
        assert len([record for record in caplog.records if WARNING in record.message]) == warnings
    assert "86400 s ahead of the API server's" in caplog.text
    assert "3600 s behind the API server's" in caplog.text


def test_clock_of_the_api_server_goes_on_between_its_answers() -> None:
    now = 1000.0
    clock = ServerClock(lambda: now)
    clock.note(format_datetime(OWN, usegmt=True))
    now += 90.5
    assert clock.time() == OWN + timedelta(seconds=90.5)
    clock.note("")  # a proxy has left the header out
    assert clock.time() == OWN + timedelta(seconds=90.5)


@pytest.mark.parametrize("date", ["", "yesterday", "Fri, 99 Jan 2026 00:10:00 GMT", "0"])
def test_answer_without_a_date_tells_no_time(date: str) -> None:
    clock = ServerClock()
    clock.note(date)
    assert clock.time() is None


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux has it")
def test_election_goes_by_a_clock_that_no_suspension_stops() -> None:
    assert BOOT_CLOCK == time.CLOCK_BOOTTIME
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boot_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)
