"""Faults of the job whose checkpoints are in a bucket, and of the bucket's server."""

from functools import partial

from measure import engine
from measure.engine import Target

from soak.perform import pick
from soak.plan import KINDS, Fault
from soak.stage import Stage

FAULT_FILE = "bucket.fault"  # in the run's folder; scripts/object_server.py reads it per request
# The brackets keep the pattern from matching the shell's own command.
SIGNAL = "pkill -{signal} -f '[o]bject_server.py'"


async def kill_job(stage: Stage, fault: Fault) -> Target:
    """Kills all processes of the job at once, so that only the bucket has its state."""
    job = KINDS[fault.kind].job
    pods = stage.running_pods(job)
    pick(fault.pick, pods, f"worker of {job}")
    return engine.kill_pods(stage.driver, pods, frozenset({job}))


async def misbehave(stage: Stage, fault: Fault) -> Target:
    file = stage.folder / FAULT_FILE

    async def begin() -> None:
        file.write_text(fault.kind)

    async def end() -> None:
        file.unlink(missing_ok=True)

    return Target(KINDS[fault.kind].title, begin, end, frozenset({_job(stage, fault)}))


async def pause(stage: Stage, fault: Fault) -> Target:
    stop, go_on = (
        partial(stage.driver.in_control_plane, SIGNAL.format(signal=signal))
        for signal in ("STOP", "CONT")
    )
    return Target("SIGSTOP to the bucket's server", stop, go_on, frozenset({_job(stage, fault)}))


def _job(stage: Stage, fault: Fault) -> str:
    job = KINDS[fault.kind].job
    return pick(fault.pick, [name for name in stage.running_jobs() if name == job], f"job {job}")
