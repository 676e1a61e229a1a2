"""The jobs that the same trace is replayed to, each with the same training. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from measure.recorded_job import recorded_job

from replay.traces import CHECKPOINT_SECONDS, SET_UP_SECONDS

SCRIPTS = (
    "hack/replay/scripts/train.py",
    "tests/worker_image/scripts/events.py",
    "tests/worker_image/scripts/sharded_weights.py",
)
SIZE = 3  # workers, one for each node of the kind cluster
STEP_SECONDS = 0.2
MAX_FAILURES = 1000  # stock torchrun counts each loss of a peer


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or what stands for one.

    Attributes:
        how: the state survives, an option of the script.
        stock: whether stock torchrun forms its group.
        operated: whether it is a job of the operator; otherwise its pods are all made again after each loss.
    """

    name: str
    title: str
    how: str = "plain"
    spares: int = 0
    stock: bool = False
    operated: bool = True

    @property
    def library(self) -> bool:
        return self.how != "plain"

    @property
    def fixed(self) -> bool:
        """Whether it cannot train with fewer workers."""
        return self.stock or not self.operated


JOBS = {
    job.name: job
    for job in (
        Job("library", "training library, `prepare`", how="library"),
        Job("spares", "the same with `spares: 1`", how="library", spares=1),
        Job("sharded", "the same, sharded in memory", how="sharded"),
        Job("plain", "plain script"),
        Job("stock", "plain script, stock torchrun under this operator, fixed size", stock=True),
        Job("restart-all", "without this operator: stock torchrun, fixed size, all pods are made again", operated=False),
    )
}


def arguments(job: Job, factor: float) -> Iterator[str]:
    """The script and its options, with all times that can be compressed divided by a factor."""
    yield from ("/scripts/train.py", "--how", job.how, "--size", str(SIZE), "--step-seconds", str(STEP_SECONDS))
    yield from ("--folder", f"/checkpoints/{job.name}", "--set-up-seconds", f"{SET_UP_SECONDS / factor:.3f}")
    yield from ("--checkpoint-every", str(max(1, round(CHECKPOINT_SECONDS / factor / STEP_SECONDS))))


def manifest(job: Job, factor: float, folder: str) -> dict[str, Any]:
    """The job's object."""
    made = recorded_job(job.name, folder, list(arguments(job, factor)), stock=job.stock or not job.operated)
    spec = made["spec"]
    del spec["minReplicas"], spec["maxReplicas"]
    spec["replicas"] = SIZE
    if job.spares:
        spec["spares"] = job.spares
    elif not job.fixed:
        spec |= {"minReplicas": 1, "maxReplicas": SIZE}
    if job.library:
        spec["prepare"] = {}
    if job.stock:
        spec["failurePolicy"] = {"maxFailures": MAX_FAILURES}
    return made
