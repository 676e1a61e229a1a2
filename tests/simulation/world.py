"""A simulated world, with the real operator's replicas, on one clock and from one seed."""

import asyncio
import logging
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import has_ended
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest
from elastic_pytorch_operator.cluster.interface import PodIdentity

from tests.operator.virtual_time import VirtualTimeLoop
from tests.simulation import invariants
from tests.simulation.acts import BY_NAME, Act
from tests.simulation.agents import Agent
from tests.simulation.api_server import ENDED, Server
from tests.simulation.clock import Clock, Due
from tests.simulation.groups import Group
from tests.simulation.jobs import UsersJob, new_job
from tests.simulation.nodes import Nodes
from tests.simulation.operators import KINDS, SLICE, SYSTEM, Door, Process
from tests.simulation.story import Ear, Story

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# For which all must be as it should be, until quiet may be skipped: progress is written each 5 s.
QUIET_SECONDS = 6.0
# The same of a wait for the end of an act, if an agent is silent: so long may the operator wait.
STILL_SECONDS = 30.0
SOON_SECONDS = 1.0  # before what comes next, in which nothing is skipped
# In which all must be as it should be: no list of the operator's is due for what it has missed.
SETTLE_SECONDS = 280.0
LOOK_SECONDS = 1.0
CALM_SECONDS = 20.0  # after trouble, in which the operator may still be late
ALWAYS = (invariants.check_ends, invariants.check_quota)
ALWAYS += (invariants.check_losses, invariants.check_writers)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a world has.

    Attributes:
        seed: of all that is left to chance.
        days: how long it lasts.
        nodes: how many.
        jobs: how many at once.
        skips: quiet is skipped.
    """

    seed: int
    days: float = 1.0
    nodes: int = 8
    jobs: int = 3
    skips: bool = True


class World:
    """A world that runs. To be made on a loop of virtual time."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.loop = asyncio.get_running_loop()
        self.dice = random.Random(f"world {setting.seed}")
        self.clock = Clock(self.loop)
        self.story = Story(self.day_seconds)
        self.quota = max(8, 2 * setting.jobs)
        self.server = Server(self.quota, self.time, lambda: int(self.day_seconds() // 3600))
        self.nodes = Nodes(self.server, self.dice, self.clock, self._begin_agent)
        self.jobs: dict[str, UsersJob] = {}
        self.groups: dict[tuple[str, int], Group] = {}
        self.gone_at: dict[str, float] = {}
        self.ends: dict[str, str] = {}
        self.violations: list[str] = []
        self.newest: dict[str, int] = {}  # the newest round of each job, by its name
        self.members: dict[str, list[str]] = {}  # of those rounds
        self.led_since = math.inf  # by the present leader
        self._leader: object = None
        self.over_quota_since: float | None = None
        self.closed = False  # to agents
        self.processes: list[Process] = []
        self._numbers = 0
        self._active = 0  # acts that are yet to be undone
        self._changed_at = 0.0
        self._calm_at = 0.0
        self.edited_at: dict[str, tuple[float, int]] = {}
        self._ear = Ear(self.story, self._note_round, self._note_deletion)
        self._job_numbers = iter(range(10**9))
        self.server.watch(self._note_change)

    # What the others need of it.

    def day_seconds(self) -> float:
        return self.clock.seconds

    def after(self, seconds: float, what: Callable[[], None]) -> Due:
        return self.clock.after(seconds, what)

    def time(self) -> datetime:
        return BEGIN + timedelta(seconds=self.day_seconds())

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def door_for(self, agent: Agent) -> Door | None:
        """The replica that the agents' Service leads to, if the agent reaches it and it listens."""
        if not agent.reachable or agent.shut_out or self.closed:
            return None
        slice_ = self.server.find("EndpointSlice", SLICE, SYSTEM)
        endpoints = (slice_ or {}).get("endpoints") or ()
        addresses = {address for endpoint in endpoints for address in endpoint["addresses"]}
        doors = (p.door for p in self.processes if p.address in addresses)
        return next((door for door in doors if door is not None), None)

    def group_of(self, agent: Agent) -> Group:
        key = (agent.job_uid, agent.round)
        before = self.groups.get(key)  # its number may be used again
        if before is None or all(member.ended for member in before.members):
            self.groups = {
                (uid, number): group
                for (uid, number), group in self.groups.items()
                if not all(member.ended for member in group.members)
                and (uid != agent.job_uid or number >= agent.round - 8)
            }
            size, training = agent.world_size, agent.training
            self.groups[key] = Group(agent.job_uid, agent.round, size, training, self)
        return self.groups[key]

    def exited(self, agent: Agent, code: int) -> None:
        self.nodes.exited(agent, code)

    def formed(self, group: Group) -> None:
        told = f"round {group.number} trains from step {group.first}"
        self.story.tell(group.members[0].job, told)
        self._check(invariants.check_group(self, group))

    def changed(self) -> None:
        self._changed_at = self.loop.time()

    def completed(self, group: Group) -> None:
        self.story.tell(group.members[0].job, f"round {group.number} has made the last step")

    def living_agents(self) -> Iterator[Agent]:
        return (agent for agent in self.nodes.agents.values() if not agent.ended)

    def manifest(self, job: UsersJob) -> Manifest:
        return self.server.find(names.KIND, job.name) or {"metadata": {"uid": ""}, "status": {}}

    def status(self, job: UsersJob) -> Manifest:
        return dict(self.manifest(job).get("status") or {})

    def running_pods(self) -> defaultdict[str, list[MutableManifest]]:
        """The pods of each job, by its name, that have not ended and whose nodes are up."""
        running: defaultdict[str, list[MutableManifest]] = defaultdict(list)
        for pod in self.server.all_of("Pod"):
            if pod["status"].get("phase") not in ENDED and self.is_up(pod):
                running[pod["metadata"]["labels"][names.LABEL_JOB_NAME]].append(pod)
        return running

    def is_up(self, pod: Manifest) -> bool:
        node = self.nodes.nodes.get(pod["spec"].get("nodeName", ""))
        return node is None or node.up

    def training_group(self, job: UsersJob) -> Group | None:
        uid = self.manifest(job)["metadata"]["uid"]
        found = [g for (owner, _), g in self.groups.items() if owner == uid and g.trains]
        return found[-1] if found else None

    def most_of(self, job: UsersJob) -> list[int]:
        """How many workers a job may have, and might have had until a moment ago."""
        at, before = self.edited_at.get(job.name, (-1e9, 0))
        recent = self.loop.time() < at + CALM_SECONDS or self.is_troubled()
        return [job.sizes[2], before if recent else 0]

    def expected_size(self, job: UsersJob) -> int | None:
        """With how many workers a job is to train after quiet; None: that depends on others."""
        if job.queued or self.server.trouble.pods is not None:
            return None
        _, wanted, _ = job.sizes
        allowed = job.spec.get("resizePolicy", {}).get("allowedReplicas")
        return max((size for size in allowed if size <= wanted), default=0) if allowed else wanted

    # What acts do to it.

    def undo_after(self, seconds: float, undo: Callable[[], None], *, active: bool = True) -> None:
        self._active += active
        self.troubled_until(seconds if active else 0.0)

        def end() -> None:
            self._active -= active
            self._calm_at = max(self._calm_at, self.loop.time() + CALM_SECONDS)
            self.changed()
            undo()

        self.clock.after(seconds, end)

    def troubled_until(self, seconds: float) -> None:
        self._calm_at = max(self._calm_at, self.loop.time() + seconds + CALM_SECONDS)

    def is_troubled(self) -> bool:
        return self._active > 0 or self.loop.time() < self._calm_at or self.server.trouble.delays

    def break_watches(self, kinds: tuple[str, ...] = KINDS) -> None:
        for process in self.processes:
            process.watches.break_off(kinds)

    def kill_process(self, process: Process, seconds: float) -> tuple[float, Callable[[], None]]:
        process.die()
        self.processes.remove(process)
        return seconds, lambda: self._start_process(process.name)

    # Its course.

    async def run(self, acts: Iterable[Act]) -> None:
        """Lives through acts, each settled before the next that comes later than that."""
        self._ear.listen()
        try:
            for number in range(self.setting.nodes):
                self.nodes.add(f"node-{number}")
            self._numbers = self.setting.nodes
            for name in ("operator-a", "operator-b"):
                self._start_process(name)
            self.submit_missing()
            for act in acts:
                await self._live_until(act.at)
                self._do(act)
                self._raise()
            await self._live_until(self.setting.days * 86_400.0)
            self._check(invariants.check_rates(self))
            self._raise()
        finally:
            self._ear.stop()
            for process in self.processes:
                process.die()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(10.0)

    def _do(self, act: Act) -> None:
        dice = random.Random(f"act {self.setting.seed} {act.number}")
        self.dice.seed(f"after {self.setting.seed} {act.number}")
        random.seed(f"operator {self.setting.seed} {act.number}")
        self.troubled_until(0.0)
        self.changed()
        told = BY_NAME[act.name](self, dice)
        self.story.tell("act", f"{act.number} {act.name} {told}".rstrip())

    async def _live_until(self, at: float) -> None:
        quiet_since: float | None = None
        told = False
        restless_since = self.loop.time()
        while self.day_seconds() < at:
            await self.clock.pass_until(min(at, self.day_seconds() + LOOK_SECONDS))
            self.submit_missing()
            self._note_leader()
            for check in ALWAYS:
                self._check(check(self))
            self._raise()
            now = self.loop.time()
            unsettled = not self._active and any(invariants.check_settled(self))
            if not unsettled:
                restless_since = now
            elif now > restless_since + SETTLE_SECONDS:
                late = f"not settled after {SETTLE_SECONDS:.0f} s"
                found = invariants.check_settled(self)
                self.violations += [f"{late}: {each}" for each in found]
                self._raise()
            restless = self._active or unsettled
            quiet_since = None if restless else now if quiet_since is None else quiet_since
            quiet = quiet_since is not None and now >= quiet_since + QUIET_SECONDS
            quiet = quiet and not self.server.trouble.delays
            if quiet and not told:
                self._tell_states()
                told = True
            if self.setting.skips and (quiet or self._is_still()):
                self._skip(at)

    def _is_still(self) -> bool:
        silent = any(not agent.connected for agent in self.living_agents())
        seconds = STILL_SECONDS if silent else QUIET_SECONDS
        return self._active > 0 and self.loop.time() > self._changed_at + seconds

    def _tell_states(self) -> None:
        for check in (invariants.check_resize, invariants.check_leaders, invariants.check_churn):
            self._check(check(self.story))
        for job in self.jobs.values():
            status = self.status(job)
            told = f"stands: {status.get('state')}, {status.get('worldSize', 0)} workers"
            self.story.tell(job.name, told)

    def _skip(self, at: float) -> None:
        """Lets the day go on until shortly before the next thing that happens."""
        found = (due for job in self.jobs.values() for due in job.deadlines(self.status(job)))
        deadlines = ((due - BEGIN).total_seconds() for due in found if due > self.time())
        self.clock.skip_until(min(at, self.clock.next_at, *deadlines) - SOON_SECONDS)

    def submit_missing(self) -> None:
        """Users replace jobs that are gone, and delete those that have ended, after an hour."""
        for name in list(self.jobs):
            if self.server.find(names.KIND, name) is None:
                del self.jobs[name]
        ended = [job for job in self.jobs.values() if has_ended(self.status(job))]
        living = len(self.jobs) - len(ended)
        for job in ended:
            if "ttlSecondsAfterFinished" not in job.spec and len(ended) > 1:
                self.story.tell(job.name, "is deleted")
                del self.jobs[job.name]
                self.server.remove_job(job.name)
                break
        for _ in range(self.setting.jobs - living):
            number = next(self._job_numbers)
            job = new_job(number, self.setting.seed)
            self.jobs[job.name] = job
            self.server.submit(job.manifest)
            self.story.tell(job.name, "is submitted")
            self.troubled_until(0.0)

    def _start_process(self, name: str) -> None:
        number = self.next_number()
        usable = [node.name for node in self.nodes.nodes.values() if node.up]
        dice = random.Random(f"process {self.setting.seed} {number}")
        address = f"10.200.{number >> 8 & 255}.{number & 255}"
        used = {process.node for process in self.processes}
        node = next((node for node in usable if node not in used), "node-0")
        process = Process(self.server, name, address, node, dice, self.time, self._close)
        self.processes.append(process)

    def _close(self, door: Door) -> None:
        for agent in list(self.living_agents()):
            if agent.connected and agent._door is door:
                agent.disconnect(dropped=True)

    def _begin_agent(self, pod: PodIdentity, job: str, job_uid: str, node: str) -> Agent:
        owner = self.jobs.get(job) or new_job(0, self.setting.seed)
        return Agent(self, pod, job, job_uid, node, owner.training)

    def _note_change(self, kind: str, change: str, pod: Manifest) -> None:
        if kind in KINDS and kind != names.KIND:
            self.changed()
        if kind != "Pod":
            return
        name = pod["metadata"]["name"]
        if change == "ADDED":
            self._check(invariants.check_grant(self, pod))
        if change == "DELETED" or pod["status"].get("phase") in ENDED:
            self.gone_at.setdefault(name, self.loop.time())

    def _note_leader(self) -> None:
        leader = next((process.replica for process in self.processes if process.leads), None)
        if leader is not self._leader or self.server.trouble.delays:
            self._leader, self.led_since = leader, self.loop.time() if leader else math.inf

    def _note_round(self, job: str, number: int, members: list[str]) -> None:
        name = job.partition("/")[2]
        self.newest[name], self.members[name] = number, members
        self._check(invariants.check_round(self, job, members))

    def _note_deletion(self, job: str, pod: str) -> None:
        self._check(invariants.check_deletion(self, job, pod))

    def _check(self, found: Iterable[str]) -> None:
        for violation in found:
            self.story.tell("violation", violation)
            self.violations.append(violation)

    def _raise(self) -> None:
        for process in self.processes:
            if process.task.done():
                process.task.result()
        if self.violations:
            raise invariants.Violation(self.story, self.violations)


def play(setting: Setting, acts: Iterable[Act]) -> Story:
    """Plays a world to its end.

    Raises:
        invariants.Violation: something that must always hold does not.
    """

    async def run() -> Story:
        world = World(setting)
        await world.run(acts)
        return world.story

    chance, logger = random.getstate(), logging.getLogger("elastic_pytorch_operator")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    random.seed(f"operator {setting.seed}")
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(run())
    finally:
        random.setstate(chance)
        logger.setLevel(level)
