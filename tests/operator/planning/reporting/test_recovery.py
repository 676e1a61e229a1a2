"""How long a change of the group took."""

from dataclasses import replace

import pytest
from elastic_pytorch_operator.planning.reporting.recovery import Recovery, advance_recovery, begin_recovery

from tests.operator.builders import NOW, Progress, a_round, an_agent, observed

BEFORE, AFTER = a_round(0, 1, 2, number=1), replace(a_round(0, 1, number=2), declared_at=NOW)


def stepping(worker: str, step: int, first: int, **fields: object) -> object:
    return an_agent(worker, round_=2, progress=Progress(step=step, first_step=first), **fields)


def test_first_round_is_no_recovery() -> None:
    assert begin_recovery(None, BEFORE, observed(), None) is None
    assert begin_recovery(a_round(number=3), a_round(0, number=4), observed(), None) is None


def test_recovery_begins_with_the_first_sign_of_the_loss() -> None:
    agents = [
        an_agent("w0", "failed", state_since=NOW - 0.2, progress=Progress(step=95)),
        an_agent("w1", progress=Progress(step=96)),
        an_agent("w2", disconnected_since=NOW - 0.3),
    ]
    begun = begin_recovery(BEFORE, AFTER, observed(agents=agents), None)
    assert begun is not None
    assert (begun.since, begun.step_before, begun.seconds) == (NOW - 0.3, 96, None)


def test_recovery_ends_with_the_first_step_and_counts_the_steps_done_again() -> None:
    begun = Recovery(2, "WorkerLost", NOW - 1.0, step_before=96)
    agents = [stepping("w0", 93, 91, progressed_at=NOW - 0.2), stepping("w1", 91, 91, progressed_at=NOW - 0.1)]
    ended = advance_recovery(begun, AFTER, agents)  # type: ignore[arg-type]
    assert ended is not None
    assert ended.seconds == pytest.approx(0.8)
    assert ended.steps_lost == 6


def test_recovery_goes_on_while_members_have_not_taken_up_the_round() -> None:
    begun = Recovery(2, "WorkerLost", NOW - 1.0)
    assert advance_recovery(begun, AFTER, [an_agent("w0", round_=2), an_agent("w1", round_=1)]) is begun


def test_without_reports_a_recovery_ends_when_all_workers_run() -> None:
    begun = Recovery(2, "WorkerLost", NOW - 1.0)
    agents = [an_agent("w0", round_=2, state_since=NOW - 0.5), an_agent("w1", round_=2, state_since=NOW - 0.4)]
    ended = advance_recovery(begun, AFTER, agents)
    assert ended is not None
    assert ended.seconds == pytest.approx(0.6)
    assert ended.steps_lost is None


def test_second_round_before_the_end_is_the_same_recovery() -> None:
    begun = Recovery(2, "WorkerLost", NOW - 1.0, step_before=96)
    again = begin_recovery(AFTER, a_round(0, number=3), observed(), begun)
    assert again == Recovery(3, "WorkerLost", NOW - 1.0, step_before=96)
