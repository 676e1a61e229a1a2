"""One job at a time in a namespace, its losses, and the records of its processes."""

import asyncio
from contextlib import suppress
from pathlib import Path

from bench.trials import Stage
from elastic_pytorch_local.faults.driver import Object
from elastic_pytorch_local.faults.steps import Step
from elastic_pytorch_local.faults.watcher import until
from measure import engine
from measure.cluster import ClusterDriver, restarts_of
from measure.commands import CommandFailed
from measure.engine import Target
from measure.outcome import trains_quietly
from measure.recorded_job import Recorded, open_to_all

from kubeflow.jobs import SIZE, SMALLEST, Job, Kind, manifest, victim

RECOVERY_SECONDS = 120.0  # or until a new job trains
QUIET_STEPS = 30  # between two losses: more than a checkpoint's interval
# GKE's, with 30 s of notice: a worker without a replacement leaves after half of it, and the node
# goes before its end.
NOTICE = "cloud.google.com/impending-node-termination"
NOTICE_SECONDS = 12.0


class KubeflowStage(Stage[Kind]):
    """Each job has a name of its own, as the names of pods stay in DNS for a while."""

    def __init__(self, driver: ClusterDriver, folder: Path, job: Job) -> None:
        self.driver, self._folder, self.job = driver, folder, job
        self._made = 0
        self.record = Recorded(folder / "none")

    @property
    def name(self) -> str:
        return f"{self.job.name}-{self._made}"

    async def prepare(self, kind: Kind, *, again: bool) -> None:
        """A job whose containers have restarted is made again.

        The kubelet's back-off would delay the next restart, but not after losses that are ten
        minutes apart.
        """
        if not again or any(restarts_of(await self.driver.pods_of(self.name)).values()):
            await self.remove()
            self._made += 1
            open_to_all(self._folder / self.name)
            self.record = Recorded(self._folder / f"{self.name}.jsonl")
            await self.driver.create_job(manifest(self.job, self.name, self._folder.name))
            await self._train(SIZE)
        if kind.grows:
            await self.driver.scale_job(self.name, SMALLEST)
        await self._train(SMALLEST if kind.grows else SIZE)

    async def choose(self, kind: Kind, turn: int) -> Target:
        if kind.grows:
            return engine.scale(self.driver, self.name, SIZE)
        pod = self._victim(kind, await self.driver.pods_of(self.name))
        return engine.delete_pod(self.driver, pod, self.name, force=kind.force)

    def _victim(self, kind: Kind, pods: list[Object]) -> str:
        steps = self.record.steps()
        return victim(kind, self.job, pods, steps[-1].pod if steps else "")

    async def end_node(self, kind: Kind) -> Target:
        """The end of the victim's node, by force without notice; undone, it takes new pods."""
        driver = self.driver
        placed = [pod for pod in await driver.pods_of(self.name) if pod["spec"].get("nodeName")]
        pod = self._victim(kind, placed)
        [node] = [each["spec"]["nodeName"] for each in placed if each["metadata"]["name"] == pod]

        async def delete_pods(*, force: bool) -> None:
            for each in await driver.pods_of(self.name):
                if each["spec"].get("nodeName") == node:
                    await driver.delete_pod(each["metadata"]["name"], force=force)

        async def end() -> None:
            if kind.force:
                await driver.cordon_node(node)
            else:
                announce = ("taint", "node", node, f"{NOTICE}=:NoSchedule", "--overwrite")
                await driver.commands.kubectl(*announce)
                if self.job.kubeflow:  # as a termination handler does
                    await delete_pods(force=False)
                await asyncio.sleep(NOTICE_SECONDS)
            await delete_pods(force=True)

        notice = "" if kind.force else f" after a notice of {NOTICE_SECONDS:g} s"
        return Target(f"{node} with {pod} ends{notice}", end, lambda: self._bring_back(node))

    async def _bring_back(self, node: str) -> None:
        await self.driver.uncordon_node(node)
        with suppress(CommandFailed):  # there was no notice
            await self.driver.commands.kubectl("taint", "node", node, f"{NOTICE}-")

    def wanted(self, kind: Kind) -> int:
        return SIZE

    async def recovered(self, kind: Kind, at: float) -> None:
        def found() -> bool:
            steps = self.record.steps()
            last = next((step.group for step in reversed(steps) if step.at <= at), 0)
            later = (step for step in reversed(steps) if step.at > at)
            return any(step.group > last and step.world == SIZE for step in later)

        what = f"{SIZE} workers of {self.name} to train again"
        await until(found, seconds=RECOVERY_SECONDS, what=what)

    def steps(self, since: float) -> list[Step]:
        return self.record.steps()

    async def remove(self) -> None:
        if self._made:
            await self.driver.delete_job(self.name)

    async def _train(self, size: int) -> None:
        def quiet() -> bool:
            return trains_quietly(self.record.steps(), size, QUIET_STEPS)

        what = f"{size} workers of {self.name} to train"
        await until(quiet, seconds=RECOVERY_SECONDS, what=what)
