"""What users do to their jobs, and an administrator to the queue: acts as those of `acts`."""

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import has_ended, is_true
from elastic_pytorch_operator.api.manifest import copied

from tests.simulation.jobs import UsersJob, template

LIST_SECONDS = 100.0  # until a list follows the begin of a watch

if TYPE_CHECKING:
    from tests.simulation.world import World


def choose_job(world: "World", dice: random.Random, *sorts: str) -> UsersJob | None:
    found = [job for job in world.jobs.values() if not sorts or job.sort in sorts]
    found = [
        job for job in found if not has_ended(world.status(job)) and not job.spec.get("suspend")
    ]
    return dice.choice(found) if found else None


def edit(world: "World", job: UsersJob, *, checked: bool = True, **changes: Any) -> str:
    """`kubectl edit`; returns what was edited."""
    manifest = {**job.manifest, "spec": {**job.manifest["spec"], **changes}}
    if world.server.find(names.KIND, job.name) is None:
        return f"{job.name}: gone"
    world.edited_at[job.name] = (world.loop.time(), job.sizes[2])
    if checked and not job.invalid:  # an API server ratchets: fields that stay may be invalid
        world.server.submit(manifest)
    else:
        world.server.apply_job(manifest)
    job.manifest = copied(manifest)
    world.troubled_until(0.0)
    told = {name: value for name, value in changes.items() if name != "template"}
    return f"{job.name}: {told or 'template'}"


def label(world: "World", job: UsersJob, labels: dict[str, str]) -> None:
    """`kubectl label`, in place of all labels."""
    if job.name in world.jobs and world.server.find(names.KIND, job.name) is not None:
        job.manifest = {**job.manifest, "metadata": {**job.manifest["metadata"], "labels": labels}}
        world.server.label_job(job.name, labels)


def scale(world: "World", dice: random.Random) -> str:
    job = choose_job(world, dice, "elastic", "limited", "rounded", "queued", "units", "spares")
    if job is None:
        return ""
    least, _, most = job.sizes
    unit = job.spec.get("unitReplicas", 1)
    return edit(world, job, replicas=unit * (dice.randint(least, most) // unit))


def change_spares(world: "World", dice: random.Random) -> str:
    """Changes how many spares a job has, perhaps together with its size."""
    job = choose_job(world, dice, "spares", "queued-spares")
    if job is None:
        return ""
    least, _, most = job.sizes
    size = {"replicas": dice.randint(least, most)} if dice.random() < 0.5 else {}
    return edit(world, job, spares=dice.randint(0, 3), **size)


def suspend(world: "World", dice: random.Random) -> str:
    """Suspends and resumes a job, perhaps with a template that its Workloads are not for."""
    job, seconds = choose_job(world, dice), dice.choice((1.0, 10.0, 60.0))
    changes = {"template": template(dice.randint(1, 3))} if dice.random() < 0.5 else {}
    trouble = world.server.trouble
    if job is None:
        return ""
    if changes and job.queued:
        trouble.keeps_workloads = dice.random() < 0.5
        world.undo_after(seconds + 20.0, partial(setattr, trouble, "keeps_workloads", False))

    def resume() -> None:
        if job.name in world.jobs:
            world.story.tell("act", f"resume {edit(world, job, suspend=False)}")

    def swap() -> None:
        # Else the API server refuses it.
        if job.name in world.jobs and is_true(world.status(job), names.SUSPENDED):
            edit(world, job, **changes)

    world.undo_after(seconds, swap)
    world.undo_after(seconds + 0.5, resume)
    return edit(world, job, suspend=True)


def edit_invalidly(world: "World", dice: random.Random) -> str:
    """Puts a field into a job's spec that only the operator refuses, and corrects it later."""
    job = choose_job(world, dice)
    if job is None or job.invalid:
        return ""
    before = job.spec.get("failurePolicy", {})
    job.invalid = True

    def correct() -> None:
        job.invalid = False
        if job.name in world.jobs:
            edit(world, job, failurePolicy=before)

    world.undo_after(dice.uniform(20.0, 120.0), correct)
    return edit(world, job, checked=False, failurePolicy={"maxFailures": -1})


def delete_job(world: "World", dice: random.Random) -> str:
    job = choose_job(world, dice)
    if job is None:
        return ""
    del world.jobs[job.name]
    world.server.remove_job(job.name)
    world.submit_missing()
    return job.name


def lower_quota(world: "World", dice: random.Random) -> str:
    server, whole = world.server, world.quota
    server.quota = dice.randint(1, whole)
    evicted = [w for w in server.workloads if dice.random() < 0.3]
    for name in evicted:
        if server.workloads[name]["status"].get("admission"):
            server.evict(name, "Preempted", "the quota is lower")

    def undo() -> None:
        server.quota = whole
        server.admit_again()

    world.undo_after(dice.uniform(10.0, 120.0), undo)
    return f"to {server.quota}, {len(evicted)} evicted"


def delete_workload(world: "World", dice: random.Random) -> str:
    """`kubectl delete workload`, perhaps while no replica watches any: only a list shows that."""
    found = sorted(world.server.workloads)
    if dice.random() < 0.5:
        world.break_watches((kueue.WORKLOAD,))
    if not found:
        return ""
    name = dice.choice(found)
    world.server.remove_workload(name)
    world.troubled_until(LIST_SECONDS)
    return name


def change_queue(world: "World", dice: random.Random) -> str:
    """Takes a job out of its queue, or into another one, and back later."""
    job = choose_job(world, dice, "queued", "queued-fixed", "queued-spares")
    queue = dice.choice(("", "others", "nowhere"))
    if job is None:
        return ""
    before = dict(job.manifest["metadata"]["labels"])
    others = {name: value for name, value in before.items() if name != kueue.LABEL_QUEUE}

    def undo() -> None:
        label(world, job, before)

    world.undo_after(dice.uniform(5.0, 120.0), undo)
    label(world, job, {**others, kueue.LABEL_QUEUE: queue} if queue else others)
    return f"{job.name}: {queue or 'none'}"
