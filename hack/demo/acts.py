"""What the demo does to the job, and what it waits for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kubectl import Kubectl
from observer import ActFailed, Observer
from timeline import Done, Resumption, Step

T = TypeVar("T")

OPERATOR_SECONDS = 30.0
START_SECONDS = 180.0  # pods start, import torch, meet
RECOVERY_SECONDS = 120.0
LOG_SECONDS = 15.0  # the status may be faster than the log
STEP_SECONDS = 5.0  # more than any step takes, on the busiest machine
STEPS_BETWEEN_ACTS = 60  # what agents import for later starts they have imported by then, on two busy cores too


@dataclass(frozen=True)
class Event:
    """A line of the demo's summary: the group has changed, and training went on."""

    title: str
    resumption: Resumption


class Play:
    """The acts, one after the other, on a job that has just been made."""

    def __init__(self, kubectl: Kubectl, observer: Observer, say: Callable[[str], None]) -> None:
        self.events: list[Event] = []
        self.training_began: float | None = None
        self._kubectl = kubectl
        self._observer = observer
        self._timeline = observer.timeline
        self._say = say

    async def perform(self, replicas: int) -> Done:
        """Go through all acts, and return how the training ended."""
        what = "the operator to make the workers (is it installed?)"
        await self._wait(lambda: self._observer.status.workers or None, OPERATOR_SECONDS, what)
        first = await self._wait(self._timeline.first_step, START_SECONDS, "the first step")
        self.training_began = first.at
        if first.workers != replicas:
            self._say(f"training began with {first.workers} workers, more will join")
        await self._trains_with(replicas, START_SECONDS)
        self._say(f"{replicas} workers train")
        await self._settle()
        await self._kill_a_worker(replicas)
        await self._settle()
        await self._scale(replicas, replicas + 1)
        await self._settle()
        await self._scale(replicas + 1, 2)
        self._say("nothing more is done to it: it trains to its end")
        return await self._complete()

    async def _kill_a_worker(self, replicas: int) -> None:
        members = self._observer.status.members
        if len(members) < 2:
            raise ActFailed(f"Of {replicas} workers the status names {len(members)} as training: none can be spared.")
        victim = members[-1]
        self._say(f"kubectl delete pod {victim.name} --grace-period=0 --force    (rank {victim.rank})")
        acted_at = time.time()
        await self._kubectl.kill_pod(victim.name)
        survivors = await self._resumed(acted_at, f"the training to go on without {victim.name}")
        self._happened("a worker's pod is killed", survivors)
        if survivors.workers < replicas:
            whole = await self._resumed(acted_at, f"the {replicas} workers to be complete again", replicas)
            self._happened("its replacement joins", whole)

    async def _scale(self, now: int, wanted: int) -> None:
        self._say(f"kubectl scale epj/{self._kubectl.job} --replicas={wanted}")
        acted_at = time.time()
        await self._kubectl.scale(wanted)
        resumed = await self._resumed(acted_at, f"the training to go on with {wanted} workers", wanted)
        self._happened("scaled up" if wanted > now else "scaled down", resumed)

    async def _resumed(self, acted_at: float, what: str, workers: int | None = None) -> Resumption:
        return await self._wait(lambda: self._timeline.resumption(acted_at, workers), RECOVERY_SECONDS, what)

    async def _trains_with(self, workers: int, seconds: float) -> None:
        def found() -> Step | None:
            step = self._timeline.last_step()
            named = len(self._observer.status.members)
            return step if step and step.workers == workers == named else None

        await self._wait(found, seconds, f"{workers} workers to train")

    async def _settle(self) -> None:
        """Let some steps go by, so that each act has a quiet moment before it."""
        begun = self._timeline.last_step()
        goal = (begun.step if begun else 0) + STEPS_BETWEEN_ACTS

        def found() -> Step | None:
            step = self._timeline.last_step()
            return step if step and step.step >= goal else None

        await self._wait(found, STEPS_BETWEEN_ACTS * STEP_SECONDS, f"step {goal}")

    async def _complete(self) -> Done:
        last = self._timeline.last_step()
        left = last.total - last.step if last else 0

        def complete() -> bool | None:
            return self._observer.status.state == "Complete" or None

        await self._wait(complete, left * STEP_SECONDS + RECOVERY_SECONDS, "the job to be Complete")
        what = "rank 0 to print the validation loss"
        done = await self._observer.until(self._timeline.done, seconds=LOG_SECONDS, what=what, ended=True)
        self._say(f"the job is Complete, validation loss {done.validation_loss:.3f}")
        return done

    async def _wait(self, found: Callable[[], T | None], seconds: float, what: str) -> T:
        return await self._observer.until(found, seconds=seconds, what=what)

    def _happened(self, title: str, resumption: Resumption) -> None:
        self.events.append(Event(title, resumption))
        r = resumption
        self._say(f"{title}: {r.before} -> {r.workers} workers, trains {r.seconds:.1f} s after, {r.steps_lost} steps lost")


def prepare(manifest: dict[str, Any], steps: int) -> dict[str, Any]:
    """Set the number of steps, and let the script print each of them: the demo reads its times from the log."""
    # The test cluster has a folder that all nodes share, and no storage class for a volume that they share.
    del manifest["spec"]["volumeClaimTemplates"]
    manifest["spec"]["template"]["spec"]["volumes"].append({"name": "checkpoints", "hostPath": {"path": "/shared"}})
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    arguments: list[str] = container["args"]
    if "--steps" in arguments:
        arguments[arguments.index("--steps") + 1] = str(steps)
    else:
        arguments += ["--steps", str(steps)]
    arguments += ["--log-every", "1"]
    return manifest
