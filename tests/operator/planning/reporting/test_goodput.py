from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import AgentView, Observed, PodView
from elastic_pytorch_operator.planning.reporting.goodput import (
    Account,
    Activity,
    Now,
    Spent,
    advance_account,
    book_interruption,
    find_activity,
    keep_account,
    read_account,
)
from elastic_pytorch_operator.planning.reporting.interruption import (
    NO_INTERRUPTIONS,
    Interruption,
    Interruptions,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import (
    NOW,
    TIME,
    Progress,
    a_job,
    a_pending_pod,
    a_pod,
    a_round,
    an_agent,
    observed,
)
from tests.situations import situations

LOST = Interruption(1, "WorkerLost", NOW - 3, step_before=40)
LOSING = Interruptions(LOST)
GROWING = Interruptions(replace(LOST, reason="WorkerJoined"))


def running(reason: str = "") -> dict[str, Any]:
    """A status whose condition Running is true, or false for a reason."""
    condition = {
        "type": "Running",
        "status": "False" if reason else "True",
        "reason": reason or "RoundRunning",
    }
    return {"replicas": 2, "readySpares": 0, "conditions": [condition]}


def group(**fields: Any) -> list[Any]:
    return [an_agent("w0", **fields), an_agent("w1", **fields)]


Moment = tuple[dict[str, Any], Observed, Interruptions]


def moment(
    status: dict[str, Any],
    *,
    agents: Sequence[AgentView] = (),
    pods: Sequence[PodView] = (),
    interruptions: Interruptions = NO_INTERRUPTIONS,
) -> Moment:
    return status, observed(pods, agents), interruptions


STEPPING = group(
    progress=Progress(step=9, first_step=5), progressed_at=NOW - 1, steps_per_second=4.0
)


@situations(
    "moment, activity, since",
    {
        "first steps": (moment(running(), agents=STEPPING), "Training", NOW - 1),
        "no steps are reported": (moment(running(), agents=group()), "StepsUnreported", NOW - 100),
        "processes start": (moment(running(), agents=group(state="ready")), "Starting", None),
        "stock torchrun has no agents": (
            moment(running(), agents=group(round_=0)),
            "StepsUnreported",
            NOW - 100,
        ),
        "a loss": (moment(running(), agents=STEPPING, interruptions=LOSING), "Recovering", NOW - 3),
        "a resize": (
            moment(running(), agents=STEPPING, interruptions=GROWING),
            "Resizing",
            NOW - 3,
        ),
        "after a loss": (
            moment(
                running(),
                agents=STEPPING,
                interruptions=Interruptions(last=replace(LOST, seconds=2.0)),
            ),
            "Training",
            NOW - 1,
        ),
        "no steps, after": (
            moment(
                running(),
                agents=group(),
                interruptions=Interruptions(last=replace(LOST, step_before=None, seconds=2.0)),
            ),
            "StepsUnreported",
            NOW - 100,
        ),
        "pods start": (moment(running("WaitingForWorkers"), pods=[a_pod(0)]), "Starting", None),
        "no node": (
            moment(running("WaitingForWorkers"), pods=[a_pending_pod(0)]),
            "WaitingForNodes",
            None,
        ),
        "lost, no node": (
            moment(running("WaitingForWorkers"), pods=[a_pending_pod(0)], interruptions=LOSING),
            "WaitingForNodes",
            None,
        ),
        "below the minimum": (
            moment(running("WaitingForWorkers"), pods=[a_pod(0)], interruptions=LOSING),
            "Recovering",
            None,
        ),
        "a set-up goes on": (
            moment(running("WaitingForWorkers"), agents=group(state="preparing"), pods=[a_pod(0)]),
            "Preparing",
            None,
        ),
        "gives its places back": (moment(running("ScheduleTimeout")), "WaitingForNodes", None),
        "waits for quota": (moment(running("WaitingForQuota")), "WaitingForQuota", None),
        "backs off": (moment(running("BackingOff")), "Recovering", None),
        "suspended": (moment(running("JobSuspended")), "Suspended", None),
    },
)
def test_activity(moment: Moment, activity: str, since: float | None) -> None:
    status, seen, interruptions = moment
    now = find_activity(a_job(), status, seen, a_round(0, 1), interruptions)
    assert (now.activity, now.processes) == (activity, 2)
    assert since in (None, now.since)


def test_group_that_a_new_leader_has_not_heard_trains() -> None:
    status = {"conditions": [{"type": "Running", "status": "Unknown", "reason": "WorkersUnheard"}]}
    now = find_activity(a_job(), status, observed(), None, NO_INTERRUPTIONS)
    assert now.activity is Activity.TRAINING


def test_ended_job_spends_no_more_time() -> None:
    ended = {
        **running(),
        "conditions": [{"type": "Complete", "status": "True", "reason": "WorkersSucceeded"}],
    }
    account = Account(NOW - 5, Activity.TRAINING, NOW - 50, {Activity.TRAINING: Spent(50, 100)})
    account = keep_account(a_job(), ended, observed(), None, account)
    assert account.spent[Activity.TRAINING].seconds == 55
    later = advance_account(account, NOW + 1000, Now(None))
    assert sum(each.seconds for each in later.spent.values()) == 55
    assert "activity" not in later.as_status(TIME)


def test_loss_that_is_found_late_takes_its_time_from_the_training() -> None:
    account = Account(NOW - 1, Activity.TRAINING, NOW - 100, {Activity.TRAINING: Spent(99, 297)})
    account = advance_account(account, NOW, Now(Activity.RECOVERING, since=NOW - 3, processes=2))
    assert account.spent == {Activity.TRAINING: Spent(97, 291), Activity.RECOVERING: Spent(3, 8)}
    account = advance_account(
        account, NOW + 2, Now(Activity.TRAINING, since=NOW + 1.5, processes=2)
    )
    assert account.spent == {
        Activity.TRAINING: Spent(97.5, 292),
        Activity.RECOVERING: Spent(4.5, 11),
    }


def test_steps_that_are_done_again_were_of_no_use() -> None:
    account = Account(
        NOW, Activity.TRAINING, NOW - 100, {Activity.TRAINING: Spent(100, 200)}, step_seconds=0.25
    )
    over = replace(LOST, seconds=2.0, steps_lost=8)
    account = book_interruption(book_interruption(account, over), over)
    assert account.spent == {Activity.TRAINING: Spent(96, 192), Activity.REPEATING: Spent(4, 8)}


def test_time_before_the_first_report_of_a_step_was_no_training() -> None:
    account = Account(NOW, Activity.STARTING, NOW)
    account = advance_account(account, NOW + 5, Now(Activity.STEPS_UNREPORTED, processes=1))
    account = advance_account(account, NOW + 15, Now(Activity.STEPS_UNREPORTED, processes=1))
    assert account.spent == {
        Activity.STARTING: Spent(5, 5),
        Activity.STEPS_UNREPORTED: Spent(10, 10),
    }
    account = advance_account(account, NOW + 25, Now(Activity.TRAINING, processes=1))
    assert account.spent == {Activity.STARTING: Spent(25, 25), Activity.TRAINING: Spent(0, 0)}
    account = advance_account(account, NOW + 50, Now(Activity.TRAINING, processes=1))
    assert account.spent == {Activity.STARTING: Spent(25, 25), Activity.TRAINING: Spent(25, 25)}


def test_spares_cost_processes_and_no_time() -> None:
    account = Account(NOW, Activity.TRAINING, NOW)
    account = advance_account(account, NOW + 10, Now(Activity.TRAINING, processes=8, spares=4))
    assert account.spent == {Activity.TRAINING: Spent(10, 80), Activity.SPARE: Spent(0, 40)}


def test_next_leader_goes_on_with_what_went_on() -> None:
    spent = {Activity.TRAINING: Spent(90.0, 180.0), Activity.STARTING: Spent(10.0, 20.0)}
    account = Account(NOW, Activity.TRAINING, NOW - 90, spent)
    status = {"goodput": account.as_status("2026-01-01T00:00:00Z"), "worldSize": 2}
    read = read_account(status, 5.0, "2026-01-01T00:00:30Z")
    assert read is not None
    assert read.spent == {
        Activity.TRAINING: Spent(120.0, 240.0),
        Activity.STARTING: Spent(10.0, 20.0),
    }
    assert (read.until, read.activity) == (5.0, Activity.TRAINING)


def test_integers_add_up() -> None:
    seconds = {
        Activity.TRAINING: 90.75,
        Activity.STARTING: 0.5,
        Activity.RECOVERING: 5.75,
        Activity.SUSPENDED: 2.5,
    }
    account = Account(NOW, None, NOW, {activity: Spent(each) for activity, each in seconds.items()})
    found = account.as_status(TIME)["seconds"]
    assert found == {"Training": 91, "Starting": 0, "Recovering": 6, "Suspended": 2}


def test_next_leader_leaves_out_what_it_does_not_know() -> None:
    told = {
        "time": TIME,
        "activity": "Dreaming",
        "seconds": {"Dreaming": 5},
        "processSeconds": {"Dreaming": 5},
    }
    read = read_account({"goodput": told}, NOW, TIME)
    assert read == Account(NOW, None, NOW)
    assert read_account({}, NOW, TIME) is None


MOMENT = st.tuples(
    st.floats(0, 60),  # after the moment before
    st.sampled_from([activity for activity in Activity if activity is not Activity.SPARE]),
    st.none() | st.floats(0, 200),  # how long ago the activity is said to have begun
    st.integers(0, 40),  # steps that are done again
)


@given(st.lists(MOMENT, max_size=30), st.floats(0, 1))
def test_leaders_go_on_without_losing_a_second_each(moments: list[Any], fraction: float) -> None:
    """Each begins with another clock and knows the whole seconds that the last one wrote."""

    def clock(seconds: float) -> str:
        return (
            datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=int(fraction + seconds))
        ).isoformat()

    account, lasted = Account(NOW, Activity.STARTING, NOW), 0.0
    for after, activity, ago, _ in moments:
        now = Now(activity, None if ago is None else account.until + after - ago, processes=3)
        account = advance_account(account, account.until + after, now)
        written = {"goodput": account.as_status(clock(lasted + after)), "worldSize": 3}
        lasted += after + 0.75
        read = read_account(written, 3 * NOW, clock(lasted))
        assert read is not None
        account = read
    counted = sum(each.seconds for each in account.spent.values())
    assert lasted - 2 * len(moments) - 1 <= counted <= lasted + 1 + 1e-6


@given(st.lists(MOMENT, max_size=30))
def test_each_second_is_counted_once(
    moments: list[tuple[float, Activity, float | None, int]],
) -> None:
    account, moment = Account(NOW, Activity.STARTING, NOW), NOW
    for after, activity, ago, again in moments:
        moment += after
        now = Now(activity, None if ago is None else moment - ago, processes=3, step_seconds=0.5)
        account = advance_account(account, moment, now)
        if again:
            account = book_interruption(account, replace(LOST, seconds=1.0, steps_lost=again))
    assert sum(each.seconds for each in account.spent.values()) == pytest.approx(
        moment - NOW, abs=1e-6
    )
    assert all(each.seconds >= -1e-9 for each in account.spent.values())
    assert all(
        each.process_seconds == pytest.approx(3 * each.seconds, abs=1e-6)
        for each in account.spent.values()
    )
