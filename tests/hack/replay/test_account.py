"""What an event has cost, part by part, what it would cost at the real rate, and the tables that say so."""

import dataclasses
import random
from dataclasses import replace
from pathlib import Path

import pytest
from elastic_pytorch_local.faults.steps import Step
from replay import report
from replay import run as runs
from replay.__main__ import PAGE
from replay.account import account, cost, step_seconds
from replay.jobs import JOBS
from replay.run import Joined, Run, SetUp

STEP, SIZE, ABC = 0.2, 3, ("a", "b", "c")


class History:
    """A training whose clock begins at 0: 50 steps of three workers, and an event."""

    def __init__(self) -> None:
        self.now, self.number, self.group = 0.0, 0, 0
        self.steps, self.joined = list[Step](), list[Joined]()
        self.set_ups, self.events = list[SetUp](), list[float]()
        self.train(50, *ABC)
        self.event()

    def train(self, steps: int, *workers: str, back_to: int | None = None) -> None:
        """Steps of a new group, which goes on at a step; without workers, of the group that there is."""
        if workers:
            self.group, self.world = self.group + 1, len(workers)
            self.joined += [Joined(self.now, worker) for worker in workers]
            self.number = self.number if back_to is None else back_to
        for _ in range(steps):
            self.now += STEP * SIZE / self.world
            self.number += 1
            self.steps.append(Step(self.now, "w", self.number, self.world, self.group))

    def set_up(self, seconds: float, *workers: str) -> None:
        """The workers set up at the same time, while nothing else happens."""
        self.set_ups += [SetUp(self.now, self.now + seconds, worker) for worker in workers]
        self.now += seconds

    def event(self) -> None:
        self.events.append(self.now)

    def run(self, trace: str, job: str, factor: float = 100.0) -> Run:
        told = (self.steps, self.joined, self.set_ups, self.events)
        return Run(trace, job, 1, factor, "abc", 1.5 * STEP, self.now, *told)


def a_run(trace: str, job: str, pause: float) -> Run:
    history = History()
    history.now += pause
    history.train(50, *ABC)
    return history.run(trace, job)


def restarted(back_to: int) -> History:
    """All workers of a plain script start again, with a set-up of 2 s."""
    history = History()
    history.now += 5.0
    history.set_up(2.0, *ABC)
    history.train(60, *ABC, back_to=back_to)
    return history


def grown(*, prepared: bool) -> History:
    """A replacement sets up while the two others train, or makes them wait."""
    history = History()
    history.now += 0.5
    history.train(20, "a", "b")
    if prepared:
        history.set_ups.append(SetUp(history.now - 3.0, history.now - 0.1, "d"))
    else:
        history.set_up(2.9, "d")
    history.now += 0.25
    history.train(60, "a", "b", "d")
    return history


def test_restart_costs_the_pause_and_the_steps_since_the_checkpoint() -> None:
    found = account(restarted(back_to=40).run("spot", "restart-all"), 600.0)
    [paid] = found.costs
    assert found.step_seconds == pytest.approx(STEP)
    assert (paid.stopped, paid.set_up, paid.repeated, paid.lost) == pytest.approx((7.0, 2.0, 10 * STEP, 9.0))
    assert found.ratio == pytest.approx(99 * STEP / (109 * STEP + 7.0))
    assert found.real == [pytest.approx(5.0 + 100 * 2.0 + 100 * 10 * STEP)]
    assert found.real_ratio == pytest.approx(1 - 405 / 3600)
    assert found.scarce_ratio == pytest.approx(1 - 1005 / 3600), "a fixed size waits for the node"
    spared = account(restarted(back_to=50).run("spot", "spares"), 600.0)
    assert spared.scarce_ratio == spared.real_ratio, "a spare makes up for the node that is away"


def test_set_up_of_a_newcomer_costs_the_share_of_one_node_if_it_is_prepared() -> None:
    found = account(grown(prepared=True).run("spot", "library"), 600.0)
    [paid] = found.costs
    assert (paid.stopped, paid.set_up, paid.repeated) == pytest.approx((0.85, 0.0, 0.0))
    assert (paid.small, paid.small_set_up) == pytest.approx((19 * 0.3, 2.9))
    assert found.real == [pytest.approx(0.85 + (19 * 0.3 + 99 * 2.9) / 8)]
    assert found.scarce_ratio == pytest.approx(found.real_ratio - 600 / 8 / 3600)
    [paid] = account(grown(prepared=False).run("spot", "library"), 600.0).costs
    assert (paid.set_up, paid.small_set_up, paid.stopped) == pytest.approx((2.9, 0.0, 0.85 + 2.9))


def test_parts_of_the_costs_add_up_over_the_whole_trace() -> None:
    for seed in range(20):
        chance, history = random.Random(seed), History()
        for turn in range(3):
            if turn:
                history.event()
            for _ in range(chance.randrange(1, 4)):
                history.now += chance.uniform(0.0, 8.0)
                history.set_up(chance.uniform(0.0, 2.0), *ABC)
                workers = ABC[: chance.randrange(1, SIZE + 1)]
                history.train(chance.randrange(40), *workers, back_to=history.number - chance.randrange(5))
        run = history.run("spot", chance.choice(list(JOBS)))
        found, step = account(run, 600.0), step_seconds(run)
        assert 0 <= found.scarce_ratio <= found.real_ratio <= 1 and 0 <= found.ratio <= 1 + 1e-9, seed
        whole, parts = cost(run, step, run.began, run.ended), [cost(run, step, run.began, run.events[0]), *found.costs]
        for name in (field.name for field in dataclasses.fields(whole)):
            if "set_up" not in name:  # one that lies on both sides of an event counts once
                total = sum(getattr(part, name) for part in parts)
                assert total == pytest.approx(getattr(whole, name), abs=1e-6), (seed, name)


def test_tables_and_page_say_what_kept_runs_have_come_to(tmp_path: Path) -> None:
    made = [a_run("research", "plain", 1.0), a_run("spot", "library", 0.5), a_run("spot", "restart-all", 9.0)]
    for each in made:
        runs.write(tmp_path, each)
    kept = runs.read_all(tmp_path)
    assert kept == made
    shown = report.tables(kept)
    rows = [line.split(" | ")[1:4] for line in shown.splitlines() if line.startswith("| ") and "**" in line]
    assert rows == [
        ["**99.99 %**", "97.90 %", "0.50 (0.50)"],
        ["**99.75 %**", "83.08 %", "9.00 (9.00)"],
        ["**100.00 %**", "99.98 %", "1.00 (1.00)"],
    ]
    written = report.page(PAGE.read_text(), kept)
    assert (written.count("**99.99 %**"), report.page(written, kept)) == (1, written)


def test_complaints_name_what_is_below_its_goal_and_what_has_failed() -> None:
    broken = replace(a_run("spot", "sharded", 1.0), error="Waited: for nothing")
    empty = replace(a_run("research", "spares", 1.0), events=[])
    assert report.complaints([a_run("spot", "library", 150.0), a_run("spot", "plain", 150.0), broken, empty]) == [
        "spot, sharded: Waited: for nothing",
        "research, spares: too few steps or events",
        "spot, library: 95.83 % at the real rate, the goal is 97.00 %",
    ]
