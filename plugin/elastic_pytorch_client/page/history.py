"""What has been seen of a job since `kubectl epj ui` began: its status tells the present only."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from elastic_pytorch_client.reading.job_view import JobView

MAX_SAMPLES = 240
MAX_SIZES = 256
MAX_LANES = 256
MAX_CHANGES = 64  # of the state of one worker
MAX_DEPARTURES = 64

GONE = ""  # the state of a worker that has no pod
LOST = "Lost"


@dataclass(frozen=True, slots=True)
class GroupSize:
    """A change of the group.

    Attributes:
        at: when it was seen.
        workers: that train together since then; 0: none does.
        round: of that group.
    """

    at: datetime
    workers: int
    round: int


@dataclass(frozen=True, slots=True)
class Departure:
    """A worker that trained, and is lost or gone.

    Attributes:
        at: when that was seen.
        worker: its pod.
        node: of the pod.
        round: the last one in which it trained.
    """

    at: datetime
    worker: str
    node: str
    round: int


@dataclass
class Samples:
    """Losses and speeds, oldest first."""

    losses: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    speeds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    last: tuple[int | None, float | None] = (None, None)

    def take(self, job: JobView) -> None:
        """Remembers what a job says of itself now, if that is news."""
        progress = job.progress
        if (progress.step, progress.loss) == self.last:
            return
        self.last = (progress.step, progress.loss)
        if progress.loss is not None:
            self.losses.append(progress.loss)
        if progress.steps_per_second is not None and job.world:
            self.speeds.append(progress.steps_per_second)


@dataclass
class History:
    """What has been seen of a job, oldest first.

    Attributes:
        samples: losses and speeds.
        sizes: of its group.
        lanes: the changes of each worker's state, by its index.
        departures: of workers, while the job was to run.
    """

    samples: Samples = field(default_factory=Samples)
    sizes: deque[GroupSize] = field(default_factory=lambda: deque(maxlen=MAX_SIZES))
    lanes: dict[int, deque[tuple[datetime, str]]] = field(default_factory=dict)
    departures: deque[Departure] = field(default_factory=lambda: deque(maxlen=MAX_DEPARTURES))
    _trained: dict[str, tuple[str, int]] = field(default_factory=dict)  # of each worker that is there: node, last round

    def take(self, job: JobView, now: datetime) -> None:
        """Remembers how a job is now, where that is news."""
        self.samples.take(job)
        workers = job.size if job.world else 0
        if not self.sizes or self.sizes[-1].workers != workers or (workers and self.sizes[-1].round != job.round):
            self.sizes.append(GroupSize(now, workers, job.round))
        self._take_departures(job, now)
        # Of two pods of an index, the one in the group counts.
        states = {worker.index: worker.state for worker in sorted(job.workers, key=lambda w: (w.rank is not None, w.name))}
        for index in {*states, *self.lanes}:
            state = states.get(index, GONE)
            if index not in self.lanes:
                if len(self.lanes) >= MAX_LANES:
                    continue
                self.lanes[index] = deque(maxlen=MAX_CHANGES)
            lane = self.lanes[index]
            if not lane or lane[-1][1] != state:
                lane.append((now, state))

    def _take_departures(self, job: JobView, now: datetime) -> None:
        there = {worker.name for worker in job.workers if worker.state != LOST}
        lost = {worker.name for worker in job.workers if worker.state == LOST}
        if job.unlisted:  # of a large job, the status lists a worker at one time, and leaves it out at another
            self._trained = {name: known for name, known in self._trained.items() if name in there | lost}
        gone = self._trained.keys() - there
        for worker in sorted(gone):
            node, trained_round = self._trained.pop(worker)
            if not (job.ended or job.suspended):
                self.departures.append(Departure(now, worker, node, trained_round))
        if job.world:
            self._trained |= {w.name: (w.node, job.round) for w in job.members if w.name in there and w.node}
