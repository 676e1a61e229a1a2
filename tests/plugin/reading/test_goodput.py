from typing import Any

import pytest
from elastic_pytorch_client.reading.goodput import LOST_TO, Goodput, view_goodput
from elastic_pytorch_client.views.status_view import describe_goodput
from elastic_pytorch_operator.planning.reporting.goodput import Account, Activity, Spent

SPENT = {
    Activity.TRAINING: Spent(920.0, 0.0),
    Activity.RECOVERING: Spent(60.4, 0.0),
    Activity.STARTING: Spent(19.6, 0.0),
    Activity.REPEATING: Spent(0.3, 0.0),
    Activity.SUSPENDED: Spent(5000.0, 0.0),
    Activity.SPARE: Spent(0.0, 4000.0),
}


def test_status_of_the_operator_is_read() -> None:
    goodput = view_goodput(
        {"goodput": Account(0.0, None, 0.0, SPENT).as_status("2026-01-01T00:00:00Z")}
    )
    assert str(goodput) == "92.0%"
    assert describe_goodput(goodput) == "goodput 92.0%, lost 6.0% recovering, 2.0% starting"


@pytest.mark.parametrize(
    ("seconds", "ratio"),
    [
        ({}, None),
        ({"Starting": 5}, 0),
        ({"Training": 0, "Starting": 25}, 0),
        ({"Starting": 5, "StepsUnreported": 10}, 10 / 15),
        ({"Training": 75, "Starting": 25}, 0.75),
    ],
)
def test_share_of_kept_steps(seconds: dict[str, int], ratio: float | None) -> None:
    assert Goodput(seconds).ratio == ratio


@pytest.mark.parametrize(
    "status", [{}, {"goodput": {}}, {"goodput": {"seconds": {"Suspended": 5}}}]
)
def test_what_is_not_known_is_not_said(status: dict[str, Any]) -> None:
    assert (
        str(view_goodput(status)),
        view_goodput(status).lost,
        describe_goodput(view_goodput(status)),
    ) == ("", "", "")


def test_all_that_time_is_lost_to_has_words() -> None:
    kept = {Activity.TRAINING, Activity.STEPS_UNREPORTED, Activity.SUSPENDED, Activity.SPARE}
    assert set(LOST_TO) == {activity.value for activity in Activity if activity not in kept}
    assert Goodput(dict.fromkeys(LOST_TO, 1)).lost.count(",") == len(LOST_TO) - 1
