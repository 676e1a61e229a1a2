"""Histories of trainings, written as what their groups did."""

from replay.run import Joined, Made, Run, SetUp, Step

STEP = 0.2
SIZE = 3


class History:
    """A training whose clock begins at 0."""

    def __init__(self) -> None:
        self.now, self.number, self.group = 0.0, 0, 0
        self.steps: list[Step] = []
        self.joined: list[Joined] = []
        self.set_ups: list[SetUp] = []
        self.events: list[Made] = []

    def join(self, *workers: str, back_to: int | None = None) -> None:
        """A new group, which goes on at a step."""
        self.group += 1
        self.joined += [Joined(self.now, worker) for worker in workers]
        self.number = self.number if back_to is None else back_to
        self.world = len(workers)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.now += STEP * SIZE / self.world
            self.number += 1
            self.steps.append(Step(self.now, self.number, self.world, self.group))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def set_up(self, seconds: float, *workers: str) -> None:
        """The workers set up at the same time, while nothing else happens."""
        self.set_ups += [SetUp(self.now, self.now + seconds, worker) for worker in workers]
        self.now += seconds

    def event(self, kind: str = "loss") -> None:
        self.events.append(Made(self.now, kind, "a node goes"))

    def run(self, trace: str, job: str, factor: float, began: float = 0.0) -> Run:
        return Run(
            trace, job, 1, factor, "abc", began or 1.5 * STEP, self.now, self.steps, self.joined, self.set_ups, self.events
        )
