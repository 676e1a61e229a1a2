"""What has been seen of a job since `kubectl epj ui` began: its status tells the present only."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.views.top_view import SparklineSamples

MAX_SIZES = 256
MAX_LANES = 256
MAX_CHANGES = 64  # of the state of one worker

GONE = ""  # the state of a worker that has no pod


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


@dataclass
class History:
    """What has been seen of a job, oldest first.

    Attributes:
        samples: losses and speeds.
        sizes: of its group.
        lanes: the changes of each worker's state, by its index.
    """

    samples: SparklineSamples = field(default_factory=SparklineSamples)
    sizes: deque[GroupSize] = field(default_factory=lambda: deque(maxlen=MAX_SIZES))
    lanes: dict[int, deque[tuple[datetime, str]]] = field(default_factory=dict)

    def take(self, job: JobView, now: datetime) -> None:
        """Remembers how a job is now, where that is news."""
        self.samples.take(job)
        workers = job.size if job.world else 0
        if not self.sizes or self.sizes[-1].workers != workers or (workers and self.sizes[-1].round != job.round):
            self.sizes.append(GroupSize(now, workers, job.round))
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
