"""What an event has cost, part by part, and what it would cost at the real rate."""

import dataclasses
import random

import pytest
from replay.account import account, cost, step_seconds
from replay.jobs import JOBS
from replay.run import SetUp

from tests.hack.replay.histories import SIZE, STEP, History

ABC = ("a", "b", "c")


def restarted(back_to: int | None) -> History:
    """A plain script loses a worker after 50 steps, and all start again, with a set-up of 2 s."""
    history = History()
    history.join(*ABC)
    history.train(50)
    history.event()
    history.wait(5.0)
    history.set_up(2.0, *ABC)
    history.join(*ABC, back_to=back_to)
    history.train(60)
    return history


def test_a_restart_costs_the_pause_and_the_steps_since_the_checkpoint() -> None:
    found = account(restarted(back_to=40).run("spot", "restart-all", 100.0), 600.0)
    [paid] = found.costs
    assert found.step_seconds == pytest.approx(STEP)
    assert (paid.stopped, paid.set_up, paid.repeated) == (pytest.approx(7.0), pytest.approx(2.0), pytest.approx(10 * STEP))
    assert (paid.lost, paid.small, paid.slower) == (pytest.approx(9.0), 0, pytest.approx(0.0))
    assert found.ratio == pytest.approx(99 * STEP / (109 * STEP + 7.0))
    assert found.real == [pytest.approx(5.0 + 100 * 2.0 + 100 * 10 * STEP)]
    assert found.real_ratio == pytest.approx(1 - 405 / 3600)
    assert found.scarce_ratio == pytest.approx(1 - 1005 / 3600), "a fixed size waits for the node"


def grown(*, prepared: bool) -> History:
    """The library loses a worker; its replacement sets up while the two others train, or makes them wait."""
    history = History()
    history.join(*ABC)
    history.train(50)
    history.event()
    history.wait(0.5)
    history.join("a", "b")
    history.train(20)
    if prepared:
        history.set_ups.append(SetUp(history.now - 3.0, history.now - 0.1, "d"))
    else:
        history.set_up(2.9, "d")
    history.wait(0.25)
    history.join("a", "b", "d")
    history.train(60)
    return history


def test_set_up_of_a_newcomer_costs_the_share_of_one_node_if_it_is_prepared() -> None:
    found = account(grown(prepared=True).run("spot", "library", 100.0), 600.0)
    [paid] = found.costs
    assert (paid.stopped, paid.set_up, paid.repeated) == (pytest.approx(0.75 + 0.1), 0.0, 0.0)
    assert (paid.small, paid.small_set_up) == (pytest.approx(19 * 0.3), pytest.approx(2.9))
    assert paid.lost == pytest.approx(0.85 + 19 * 0.1), "the first step of the two is part of the pause, and longer"
    assert found.real == [pytest.approx(0.85 + (19 * 0.3 + 99 * 2.9) / 8)]
    assert found.scarce_ratio == pytest.approx(found.real_ratio - 600 / 8 / 3600)


def test_set_up_that_the_group_waits_for_costs_all_of_it() -> None:
    [paid] = account(grown(prepared=False).run("spot", "library", 100.0), 600.0).costs
    assert (paid.set_up, paid.small_set_up) == (pytest.approx(2.9), 0.0)
    assert paid.stopped == pytest.approx(0.85 + 2.9)


@pytest.mark.parametrize(
    ("trace", "job", "seconds"),
    [
        ("spot", "library", 0.25 + (2.0 * 100 - 120) / 8),
        ("spot", "spares", 0.25),
        ("research", "library", 0.25),
    ],
)
def test_newcomer_that_was_ready_within_the_notice_would_not_be_in_reality(trace: str, job: str, seconds: float) -> None:
    history = History()
    history.join(*ABC)
    history.train(50)
    history.event()
    history.train(20)
    history.set_ups.append(SetUp(history.now - 2.5, history.now - 0.5, "d"))
    history.wait(0.25)
    history.join("a", "b", "d")
    history.train(60)
    found = account(history.run(trace, job, 100.0), 600.0)
    assert found.costs[0].hidden_set_up == pytest.approx(2.0)
    assert found.real == [pytest.approx(seconds)]


def test_copies_in_memory_do_not_depend_on_the_checkpoints_interval() -> None:
    history = restarted(back_to=48)
    history.set_ups.clear()
    [real] = account(history.run("research", "sharded", 2000.0), 600.0).real
    assert real == pytest.approx(7.0 + 2 * STEP)


def test_spare_makes_up_for_a_node_that_is_away() -> None:
    found = account(restarted(back_to=50).run("spot", "spares", 100.0), 600.0)
    assert found.scarce_ratio == found.real_ratio


def test_event_that_nothing_follows_costs_all_the_time_that_is_left() -> None:
    history = History()
    history.join(*ABC)
    history.train(50)
    history.event()
    history.wait(12.0)
    [paid] = account(history.run("spot", "stock", 100.0), 600.0).costs
    assert (paid.lost, paid.stopped) == (pytest.approx(12.0), pytest.approx(12.0))


def test_runs_without_steps_or_events_have_no_account() -> None:
    history = History()
    history.join(*ABC)
    history.train(50)
    with pytest.raises(ValueError, match="no event"):
        account(history.run("spot", "plain", 100.0), 600.0)
    history.event()
    history.steps.clear()
    with pytest.raises(ValueError, match="two steps"):
        account(history.run("spot", "plain", 100.0), 600.0)


@pytest.mark.parametrize("seed", range(50))
def test_parts_add_up_over_the_whole_trace(seed: int) -> None:
    chance, history = random.Random(seed), History()
    history.join(*ABC)
    history.train(60)
    for _ in range(4):
        history.event()
        for _ in range(chance.randrange(1, 4)):
            history.wait(chance.uniform(0.0, 8.0))
            history.set_up(chance.uniform(0.0, 2.0), *ABC)
            history.join(*ABC[: chance.randrange(1, SIZE + 1)], back_to=history.number - chance.randrange(5))
            history.train(chance.randrange(40))
    run = history.run("spot", chance.choice(list(JOBS)), 100.0)
    found = account(run, 600.0)
    assert 0 <= found.ratio <= 1 + 1e-9
    assert 0 <= found.scarce_ratio <= found.real_ratio <= 1
    step = step_seconds(run)
    whole = cost(run, step, run.began, run.ended)
    alone = cost(run, step, run.began, run.events[0].at)
    parts = [alone, *found.costs]
    for name in (field.name for field in dataclasses.fields(whole)):
        if "set_up" not in name:  # one that lies on both sides of an event counts once
            assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(whole, name), abs=1e-6), name
    for part in parts:
        smaller = part.lost - part.stopped - part.repeated - part.slower
        assert -1e-6 <= smaller <= part.small + 1e-6
        assert part.set_up <= part.stopped + 2 * STEP
