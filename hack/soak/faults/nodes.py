"""Faults of nodes, and of their image and storage."""

from functools import partial

from measure.engine import Target

from soak.perform import pick
from soak.plan import KINDS, Fault
from soak.stage import Stage

IMAGE = "docker.io/library/elastic-pytorch-worker:dev"
KEPT = "docker.io/library/elastic-pytorch-worker:kept-by-soak"

# Repeatable: the node may have been away the first time.
CTR = "ctr -n k8s.io images"
RENAME = (
    f"{CTR} ls -q | grep -qx {{old}} || exit 0; {CTR} tag --force {{old}} {{new}}; {CTR} rm {{old}}"
)


async def on_node(stage: Stage, fault: Fault) -> Target:
    node = pick(fault.pick, stage.nodes, "node")
    driver = stage.driver
    do, undo = {
        "drain": (driver.drain_node, driver.uncordon_node),
        "cordon": (driver.cordon_node, driver.uncordon_node),
        "kill-node": (driver.kill_node, driver.start_node),
        "pause-node": (driver.freeze_node, driver.thaw_node),
        "cut-node": (driver.cut_node, driver.mend_node),
    }[fault.kind]
    leads = [pod["spec"].get("nodeName") for pod in await driver.operators()][:1] == [node]
    jobs = frozenset[str]() if leads and KINDS[fault.kind].loses else stage.jobs_on(node)
    what = f"{fault.kind} {node}{', where the leading operator is' if leads else ''}"
    reached = "" if fault.kind == "cordon" else node
    return Target(what, partial(do, node), partial(undo, node), jobs=jobs, node=reached)


async def remove_image(stage: Stage, fault: Fault) -> Target:
    """Renames the workers' image on one node, so that containers that start there find none."""
    node = pick(fault.pick, stage.nodes, "node")

    async def rename(old: str, new: str) -> None:
        command = RENAME.format(old=old, new=new)
        await stage.driver.commands.docker("exec", node, "sh", "-ec", command)

    return Target(
        f"{IMAGE} is gone from {node}", lambda: rename(IMAGE, KEPT), lambda: rename(KEPT, IMAGE)
    )


async def refuse_writes(stage: Stage, fault: Fault) -> Target:
    """Makes a job's checkpoint folder read-only, which the library handles like a full disk."""
    running, of_library = stage.running_jobs(), {sort.name for sort in stage.sorts if sort.library}
    jobs = [job for job in running if job in of_library and (stage.folder / job).is_dir()]
    job = pick(fault.pick, jobs, "job of the training library with a folder")

    async def set_mode(mode: int) -> None:
        (stage.folder / job).chmod(mode)

    return Target(
        f"the checkpoint folder of {job} is read-only",
        lambda: set_mode(0o555),
        lambda: set_mode(0o777),
        frozenset({job}),
    )
