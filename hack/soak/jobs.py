"""The jobs of a run, one of each sort, and undisturbed ones that show their result. Pure."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from measure.cluster import TEMPLATE_LABEL
from measure.kind_cluster import SECURITY
from measure.object_storage import BUCKET, keep_in_bucket
from measure.recorded_job import recorded_job

SCRIPTS = (
    "hack/soak/scripts/plain.py",
    "hack/soak/scripts/object_server.py",
    "tests/worker_image/scripts/stateful.py",
    "tests/worker_image/scripts/sharded_weights.py",
    "tests/worker_image/scripts/own_orders.py",
    "tests/worker_image/scripts/events.py",
)
SAMPLES, BATCH = 500, 12
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)
STEP_SECONDS = 0.2
# Of each step: the training's pauses, spread over all steps.
PAUSES_SECONDS = 0.05
# Of the time in a job that is suspended and resumed: its pods restart (0.3 to 0.6 were measured).
TRAINING = 0.5
# With 0.01, AdamW doubles a difference every 300 steps or so: the order of sums made 0.1 after
# 14,400 steps. With this, it made 3e-13, and a sample left out of step 100 made 0.025.
LEARNING_RATE = 0.001
UNDISTURBED = "undisturbed-"
PREPARE_SECONDS = 300  # on a machine that holds the whole cluster
FLUSH_SECONDS = 1.0  # between two checkpoints in the bucket, at least
SAVED_STEPS = 10  # between two checkpoints of the script without the library
COPIED_STEPS = 6  # that a loss may cost while shards are being copied: a second of steps
SIDECAR = {
    "name": "sidecar",
    "image": "elastic-pytorch-worker:dev",
    "imagePullPolicy": "IfNotPresent",
    "command": ["sleep", "infinity"],
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    "securityContext": SECURITY,
}


@dataclass(frozen=True, slots=True)
class Sort:
    name: str
    library: bool = True  # which keeps each step in memory, not only in the last checkpoint
    replicas: int = 2
    maximum: int = 3
    processes: int = 1
    micro_batch_size: int = 0  # without any, no dropout, which would depend on the group
    stock: bool = False
    sidecar: bool = False
    suspended: bool = False
    set_up_seconds: float = 0  # of its script; if positive, workers run it in `spec.prepare`
    set_up_fails: float = 0  # the probability, for a worker that joins a trained job
    spares: int = 0
    unit: int = 1
    sharded: bool = False  # another worker has one of each shard; a loss of two may cost more
    bucket: bool = False  # has its checkpoints, but its records are in the run's folder

    @property
    def minimum(self) -> int:
        return self.replicas if self.spares else self.unit

    @property
    def repeated(self) -> int:
        """The steps that may be repeated after a loss that a worker survives."""
        if self.sharded:
            return COPIED_STEPS
        return 1 if self.library else SAVED_STEPS + 1


@dataclass(frozen=True, slots=True)
class Expected(Sort):
    total: int = 0  # steps
    epochs: int = 0  # whose samples are recorded
    samples: int = SAMPLES


SORTS = {
    sort.name: sort
    for sort in (
        Sort("plain", library=False, replicas=3, maximum=4),
        Sort("library", replicas=3, maximum=4),
        Sort("micro-batches", micro_batch_size=4),
        Sort("stock", library=False, stock=True),
        Sort("two-processes", processes=2),
        Sort("sidecar", library=False, sidecar=True),
        Sort("suspended", suspended=True),
        Sort("prepared", set_up_seconds=20),
        Sort("spare", maximum=2, set_up_seconds=10, spares=1),
        Sort("newcomers-fail", set_up_seconds=5, set_up_fails=0.3),
        Sort("units", replicas=4, maximum=6, unit=2),
        Sort("sharded", replicas=3, maximum=4, sharded=True),
        Sort("bucket", replicas=3, maximum=4, bucket=True),
    )
}
# A bucket needs another image.
USUAL = tuple(sort.name for sort in SORTS.values() if not sort.bucket)


def undisturbed(sorts: Iterable[Sort]) -> dict[str, Sort]:
    """For each library job, one of a single worker that trains the same; equal ones share it."""
    found, alone = dict[tuple[int, bool], Sort](), dict[str, Sort]()
    for sort in sorts:
        if sort.library:
            name, batch, toggled = UNDISTURBED + sort.name, sort.micro_batch_size, sort.suspended
            made = Sort(name, replicas=1, maximum=1, micro_batch_size=batch, suspended=toggled)
            alone[sort.name] = found.setdefault((batch, toggled), made)
    return alone


def url_of(job: str) -> str:
    return f"s3://{BUCKET}/{job}"


def epochs_of(sort: Sort, seconds: float) -> int:
    steps = seconds / (STEP_SECONDS + PAUSES_SECONDS) * (TRAINING if sort.suspended else 1)
    return max(1, round(steps / STEPS_PER_EPOCH))


def expected(sort: Sort, seconds: float) -> Expected:
    epochs = epochs_of(sort, seconds)
    total, sampled = epochs * STEPS_PER_EPOCH, epochs if sort.library else 0
    return Expected(**asdict(sort), total=total, epochs=sampled)


def manifest(sort: Sort, seconds: float, folder: str) -> dict[str, Any]:
    job = recorded_job(sort.name, folder, arguments(sort, seconds), stock=sort.stock)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    spec["replicas"] = sort.replicas
    if sort.spares:
        del spec["minReplicas"], spec["maxReplicas"]
        spec["spares"] = sort.spares
    else:
        spec |= {"minReplicas": sort.minimum, "maxReplicas": sort.maximum}
    if sort.unit > 1:
        spec["unitReplicas"] = sort.unit
    if sort.set_up_seconds:
        spec["prepare"] = {"timeoutSeconds": PREPARE_SECONDS}
    if sort.processes > 1:
        spec["nprocPerNode"] = sort.processes
    spec["template"]["metadata"] = {"labels": TEMPLATE_LABEL}
    if sort.bucket:
        keep_in_bucket(pod)
    if sort.sidecar:
        pod["initContainers"] = [SIDECAR]
    return job


def arguments(sort: Sort, seconds: float) -> list[str]:
    epochs = epochs_of(sort, seconds)
    wait = 0 if sort.name.startswith(UNDISTURBED) else STEP_SECONDS
    folder = url_of(sort.name) if sort.bucket else f"/checkpoints/{sort.name}"
    script = "stateful" if sort.library else "plain"
    words = f"/scripts/{script}.py --step-seconds {wait} --folder {folder}"
    if not sort.library:
        return f"{words} --steps {epochs * STEPS_PER_EPOCH}".split()
    words += f" --epochs {epochs} --samples {SAMPLES} --batch-size {BATCH} --double --in-process"
    words += " --sharded-weights" if sort.sharded else ""
    words += f" --flush-seconds {FLUSH_SECONDS}" if sort.bucket else ""
    words += f" --learning-rate {LEARNING_RATE} --set-up-seconds {sort.set_up_seconds}"
    words += f" --set-up-fails {sort.set_up_fails} --micro-batch-size {sort.micro_batch_size}"
    return f"{words} --dropout {0.1 if sort.micro_batch_size else 0}".split()
