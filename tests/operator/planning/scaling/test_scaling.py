"""Whole days of jobs that are autoscaled, in virtual time: how they settle, how often they change, and what is saved."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.model.observed import Observed, Progress
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.scaling.autoscale import MIN_REST_SECONDS
from elastic_pytorch_operator.planning.scaling.scaling import Scaling, advance_scaling, note_change
from elastic_pytorch_operator.planning.scaling.scaling_status import read_scaling, write_scaling

from tests.operator.builders import a_job, a_round, an_agent

pytestmark = pytest.mark.simulation

HOUR = 3600.0
DAY = 24 * HOUR
PLAN_SECONDS = 10.0
START_SECONDS = 30.0  # from a pod's creation to its agent's first report
SAMPLES = 64
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

Speed = Callable[[int, float], float]  # samples per second, by workers and by the second of the day


@dataclass
class Day:
    """A job whose group follows the number of workers that are wanted.

    Attributes:
        speed: of the training.
        pause_seconds: for which a change stops it.
        noise: the standard deviation of the speed from one plan to the next, as a part of it.
        room: for how many workers there is room.
        sizes: the size of the group in each plan.
        told: all decisions.
        done: samples.
    """

    speed: Speed
    replicas: int = 4
    min_efficiency: float | None = 0.7
    pause_seconds: float = 3.0
    noise: float = 0.0
    room: int = 99
    now: float = 1000.0
    known: Scaling = field(default_factory=Scaling)
    sizes: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    done: float = 0.0
    lost_until: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)
    writes: int = 0

    def __post_init__(self) -> None:
        policy = {"autoscale": {"minEfficiencyPercent": round(100 * self.min_efficiency)}} if self.min_efficiency else {}
        self.job = a_job(replicas=self.replicas, minimum=1, maximum=64, resizePolicy=policy)
        self.random = Random(16)
        self.size, self.number, self.step = 0, 0, 0.0
        self.round: Round | None = None
        self.trains_at, self.larger_at = self.now, self.now

    @property
    def changes(self) -> int:
        """How often the group has changed its size."""
        return sum(before != after for before, after in zip(self.sizes, self.sizes[1:], strict=False))

    def observe(self) -> Observed:
        round_ = self.round
        progress = Progress(step=int(self.step), samples_per_step=SAMPLES) if self.now > self.trains_at else Progress()
        agents = {"w0": an_agent("w0", round_=self.number, progress=progress, progressed_at=self.now)}
        moment = BEGIN + timedelta(seconds=self.now)
        return Observed(now=self.now, time=write_time(moment), round=round_, agents=agents if round_ else {})

    def run(self, seconds: float) -> "Day":
        until = self.now + seconds
        while self.now < until:
            self.now += PLAN_SECONDS
            self._train()
            seen = self.observe()
            self.known, news = advance_scaling(self.job, seen, self.known)
            self.told += [news.decision] if news.decision else []
            self.advice += [str(news.advice)] if news.advice else []
            written = write_scaling(self.job, seen, self.known)
            self.writes += written != self.status
            self.status = written
            self.job = replace(self.job, status={"scaling": written, "observedGeneration": self.job.generation})
            self._follow(self.known.autoscale.limit(self.job.wanted))
            self.sizes.append(self.size)
        return self

    def lose_a_worker(self, seconds: float) -> None:
        """A worker is lost; its replacement takes some time."""
        self._form(self.size - 1)
        self.lost_until = self.now + seconds

    def change_leader(self) -> None:
        self.known = read_scaling(self.job, self.observe())

    def _train(self) -> None:
        if self.size and self.now > self.trains_at:
            noise = max(0.1, self.random.gauss(1.0, self.noise)) if self.noise else 1.0
            self.step += PLAN_SECONDS * self.speed(self.size, self.now % DAY) * noise / SAMPLES
            self.done += PLAN_SECONDS * self.speed(self.size, self.now % DAY)

    def _follow(self, wanted: int) -> None:
        wanted = min(wanted, self.room)
        if self.now < self.lost_until:
            wanted = min(wanted, self.size)
        if wanted <= self.size:
            self.larger_at = self.now + START_SECONDS
        if wanted < self.size or (wanted > self.size and self.now >= self.larger_at):
            if self.size:
                self.known = note_change(self.known, self.pause_seconds)
            self._form(wanted)

    def _form(self, size: int) -> None:
        self.size, self.number, self.step = size, self.number + 1, 0.0
        self.round = a_round(*range(size), number=self.number)
        self.trains_at = self.now + self.pause_seconds

    def share_at(self, *sizes: int) -> float:
        """The part of the time in which the group has had one of some sizes."""
        return sum(size in sizes for size in self.sizes) / len(self.sizes)

    def worker_hours(self) -> float:
        return sum(self.sizes) * PLAN_SECONDS / HOUR


def saturating(limit: int) -> Speed:
    return lambda workers, _: 100.0 * min(workers, limit)


def linear(workers: int, _: float) -> float:
    return 100.0 * workers


def changing(workers: int, second: float) -> float:
    """Whose input is slow from 8 to 16 o'clock, so that it feeds only two workers."""
    return 100.0 * min(workers, 2 if 8 * HOUR <= second < 16 * HOUR else 6)


MAX_CHANGES = 2 * (4 + DAY / (600 * 2**4)) + 8  # tries while the rests double, tries of a day, and the way there


def test_job_that_saturates_settles_and_saves_a_quarter() -> None:
    day = Day(saturating(3)).run(DAY)
    assert day.known.autoscale.replicas == 3
    assert day.share_at(3) > 0.95
    assert day.changes <= MAX_CHANGES, day.told
    assert day.worker_hours() < 0.77 * 4 * 24
    assert day.done > 0.98 * 300 * DAY
    assert any(told.startswith("Gives back 1 of 4 workers: the 4th worker added 0 %") for told in day.told)


def test_job_that_scales_keeps_all_workers() -> None:
    day = Day(linear).run(DAY)
    assert day.known.autoscale.replicas is None
    assert day.share_at(4) > 0.95
    assert day.changes <= MAX_CHANGES, day.told
    assert day.done > 0.98 * 400 * DAY
    assert not any(told.startswith("Gives back") for told in day.told)


@pytest.mark.parametrize(("speed", "kept"), [(saturating(3), 3), (linear, None)])
@pytest.mark.parametrize("noise", [0.05, 0.15])
def test_noise_changes_no_verdict(speed: Speed, kept: int | None, noise: float) -> None:
    day = Day(speed, noise=noise).run(DAY)
    assert day.known.autoscale.replicas == kept
    assert day.share_at(kept or 4) > 0.85
    assert day.changes <= MAX_CHANGES, day.told


def test_noise_alone_gives_nothing_back() -> None:
    day = Day(linear, noise=1.0).run(DAY)
    assert day.share_at(4) > 0.8
    assert not any(told.startswith("Gives back") for told in day.told)


def test_job_whose_speed_changes_is_followed() -> None:
    day = Day(changing, replicas=6)
    sizes = []
    for _ in range(3):
        day.run(8 * HOUR)
        sizes.append(day.known.autoscale.limit(6))
    assert sizes[0] >= 5
    assert sizes[1] <= 3
    assert sizes[2] >= 5
    assert day.changes <= 2 * MAX_CHANGES, day.told
    assert day.worker_hours() < 0.9 * 6 * 24


def test_many_workers_are_given_back_in_a_few_steps() -> None:
    day = Day(saturating(8), replicas=64).run(2 * HOUR)
    assert 6 <= day.known.autoscale.limit(64) <= 9
    assert day.changes <= 24, day.told


def test_expensive_changes_are_rare() -> None:
    day = Day(saturating(3), pause_seconds=300.0).run(DAY)
    assert day.known.autoscale.replicas == 3
    assert day.changes * 300 < 0.1 * DAY, day.told


def test_no_size_is_asked_for_in_vain_for_long() -> None:
    """There is room for three of four workers: the operator asks for the fourth as the spec does, and decides nothing."""
    day = Day(linear, room=3).run(6 * HOUR)
    assert day.told == []
    assert day.changes <= 1


def test_growth_without_room_is_given_up() -> None:
    day = Day(saturating(3)).run(HOUR)
    day.speed, day.room = linear, 3
    day.run(DAY)
    assert day.known.autoscale.replicas == 3
    assert any("there was no room for 4" in told for told in day.told)
    day.room = 4
    day.run(DAY / 2)
    assert day.known.autoscale.replicas is None


def test_losses_decide_nothing() -> None:
    calm, troubled = Day(linear).run(2 * HOUR), Day(linear).run(2 * HOUR)
    before = len(troubled.told)
    assert calm.told == troubled.told
    for _ in range(8):
        troubled.lose_a_worker(60.0)
        troubled.run(300.0)
    assert troubled.known.autoscale.replicas is None
    assert not any(told.startswith("Gives back") for told in troubled.told)
    assert len(troubled.told) - before <= 2


def test_next_leader_goes_on() -> None:
    day = Day(saturating(3))
    for _ in range(4):
        day.run(6 * HOUR)
        day.change_leader()
    assert day.known.autoscale.replicas == 3
    assert day.share_at(3) > 0.9
    assert day.changes <= 2 * MAX_CHANGES, day.told


def test_next_leader_gives_up_a_try_and_begins_another_later() -> None:
    day = Day(saturating(3))
    while day.known.autoscale.trying is None:
        day.run(PLAN_SECONDS)
    day.run(40.0)
    assert day.size == 3
    day.change_leader()
    day.run(60.0)
    assert (day.size, day.known.autoscale.trying) == (4, None)
    day.run(MIN_REST_SECONDS + 400.0)
    assert day.known.autoscale.replicas == 3
    assert [note[:9] for note in day.told[:3]] == ["Tries 3 i", "Tries 3 i", "Gives bac"]


def test_status_is_rarely_written() -> None:
    day = Day(saturating(3), noise=0.05).run(DAY)
    assert day.writes < DAY / 200


def test_advice_without_autoscale_comes_from_changes_that_others_make() -> None:
    day = Day(saturating(3), min_efficiency=None, room=3).run(600.0)
    assert day.advice == []
    day.room = 4
    day.run(HOUR)
    assert day.advice == ["the 4th worker added 0 % (300 to 300 samples/s), an efficiency of 0.00"]
    assert day.told == []
    assert day.size == 4
    assert day.status["message"] == day.advice[0]
    assert day.status["efficiency"] == "0.00"


def test_script_that_does_not_report_samples_is_left_alone() -> None:
    day = Day(linear).run(300.0)
    quiet = Day(linear)
    quiet.observe = lambda: replace(  # type: ignore[method-assign]
        Day.observe(quiet), agents={"w0": an_agent("w0", round_=quiet.number, progress=Progress(step=int(quiet.step)))}
    )
    quiet.run(HOUR)
    assert (quiet.told, quiet.changes) == ([], 0)
    assert quiet.status["message"] == "autoscale does nothing: the script reports steps without samples_per_step"
    assert day.status != quiet.status
