"""The agents of each job, in memory, rebuilt from heartbeats after a restart."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.agents.load import Hearing, HeartbeatInterval, delay_of_change
from elastic_pytorch_operator.agents.round_answer import RoundAnswer
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Progress
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.workers.silence import SILENCE_SECONDS

LEFT_ROUNDS = 16


@dataclass(slots=True)
class JobAgents:
    answer: RoundAnswer = field(default_factory=lambda: RoundAnswer(None))
    nudge: int = 0  # how often agents have been asked to report at once
    nudged_for: int = -1
    dump: int = 0  # the newest round whose stacks have been asked for
    verdict: str | None = None  # `complete` or `failed` once the job has ended
    # Set and replaced whenever there is something to send.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    agents: dict[str, AgentView] = field(default_factory=dict)
    arrived_at: float = 0.0  # when the last agent came that already had a round
    streams: Counter[str] = field(default_factory=Counter)  # those that are open, by worker
    failed: set[str] = field(default_factory=set)
    # The latest that some member has left.
    left_rounds: deque[int] = field(default_factory=lambda: deque(maxlen=LEFT_ROUNDS))

    @property
    def round(self) -> Round | None:
        return self.answer.declared

    def announce(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    def ask_to_report(self) -> None:
        self.nudge += 1
        self.announce()

    def note_left(self, round_number: int) -> None:
        if round_number not in self.left_rounds:
            self.left_rounds.append(round_number)

    def has_failed(self, agent: AgentView) -> bool:
        return agent.state is AgentState.FAILED and agent.round >= self.answer.number


HEARD_SECONDS = 60.0  # an agent that has been silent for longer is not counted
COUNT_SECONDS = 1.0
SPEED_WEIGHT = 0.3  # of the newest measurement


class AgentRegistry:
    """`expected`: about as many agents come after a takeover."""

    def __init__(
        self, expected: Callable[[], int] = lambda: 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._expected = expected
        self._first_heard_at = math.inf
        self.last_heard_at = 0.0
        self.heard_again_at = -math.inf
        self.hearing = Hearing(clock)
        self._jobs: dict[str, JobAgents] = {}
        self._interval = HeartbeatInterval()
        self._counted_at = -math.inf

    def job(self, job_uid: str) -> JobAgents:
        found = self._jobs.get(job_uid)
        if found is None:
            found = self._jobs[job_uid] = JobAgents()
        return found

    def forget_others(self, job_uids: set[str]) -> None:
        for uid in [uid for uid in self._jobs if uid not in job_uids]:
            del self._jobs[uid]

    def heartbeat_seconds(self, now: float) -> float:
        if now - self._counted_at > COUNT_SECONDS:
            self._counted_at = now
            heard = self.heard_since(now - HEARD_SECONDS)
            begins = now < self._first_heard_at + HEARD_SECONDS
            self._interval.count(max(heard, self._expected()) if begins else heard, now)
        return self._interval.seconds

    def longest_heartbeat_seconds(self, now: float) -> float:
        self.heartbeat_seconds(now)
        return self._interval.longest(now)

    def late_at(self, job_uid: str, now: float) -> float:
        """When an agent of a job will have been silent for too long; -inf: none is known."""
        heard_at = min(
            (agent.heard_at for agent in self.job(job_uid).agents.values()), default=-math.inf
        )
        return heard_at + SILENCE_SECONDS * self.longest_heartbeat_seconds(now)

    def heard_since(self, moment: float) -> int:
        return sum(
            agent.heard_at >= moment for job in self._jobs.values() for agent in job.agents.values()
        )

    @property
    def open_streams(self) -> int:
        return sum(job.streams.total() for job in self._jobs.values())

    def note_heartbeat(self, job_uid: str, beat: AgentView) -> float | None:
        """Returns in how many seconds to plan the job, or None.

        A new step asks for no plan: plans read the steps when their own time has come.
        """
        worker, now = beat.worker, beat.heard_at
        if self.last_heard_at and now >= self.last_heard_at + SILENCE_SECONDS:
            self.heard_again_at = now
        self.last_heard_at = now
        self._first_heard_at = min(self._first_heard_at, now)
        job = self.job(job_uid)
        known = job.agents.get(worker)
        if known is None and beat.round > 0:
            job.arrived_at = now  # once for each pod: the job's takeover waits for it
        if known is not None and known.incarnation != beat.incarnation:
            known = None  # another process under the pod's name
        steady = known
        if known is not None and (known.state, known.round) != (beat.state, beat.round):
            steady = None
        last, before = known or beat, steady or beat
        stepped = beat.progress.step is not None and (
            steady is None or steady.progress.step != beat.progress.step
        )
        saved = steady.saving_since if steady is not None else None
        saves = beat.state is AgentState.RUNNING and beat.saving_since is not None
        saving_since = _first(saved, beat.saving_since) if saves else None
        # A training that goes on after a save has its whole time again.
        stepped = stepped or (saved is not None and saving_since is None)
        begins = steady is None or _is_known(steady.progress) != _is_known(beat.progress)
        begins = begins or (saved is None) is not (saving_since is None)
        checkpointed = last.progress.checkpoints != beat.progress.checkpoints
        # The pod may report nothing more.
        if beat.state is AgentState.LEAVING:
            checkpointed |= last.progress.checkpoint_step != beat.progress.checkpoint_step
        placed = last.places != beat.places
        # Plans grant the others a longer silence while a whole group is silent.
        is_back = now - last.heard_at > SILENCE_SECONDS * self._interval.longest(now)
        if (
            known is not None
            and known.round > 0
            and (beat.state is AgentState.READY or beat.round != known.round)
        ):
            job.note_left(known.round)
        set_up_since, set_up_until = _set_up(known, beat)
        agent = replace(
            beat,
            state_since=before.state_since,
            progressed_at=now if stepped else last.progressed_at,
            steps_per_second=_speed(steady, beat) if steady else last.steps_per_second,
            started_at=_first(before.started_at, beat.started_at),
            formed_at=_first(before.formed_at, beat.formed_at),
            set_up_since=set_up_since,
            set_up_until=set_up_until,
            saving_since=saving_since,
        )
        job.agents[worker] = agent
        if job.has_failed(agent):
            if not job.failed:
                job.failed.add(worker)
                return 0.0  # the others are to be asked to report
            job.failed.add(worker)
        else:
            job.failed.discard(worker)
        # Once a member has failed, a plan awaits each heartbeat of the others.
        if begins or checkpointed or placed or is_back or job.failed:
            return delay_of_change(len(job.agents))
        return None

    def agents(self, job_uid: str, workers: set[str]) -> Mapping[str, AgentView]:
        job = self.job(job_uid)
        for worker in [worker for worker in job.agents if worker not in workers]:
            del job.agents[worker]
            job.failed.discard(worker)
        return dict(job.agents)

    def open_stream(self, job_uid: str, worker: str) -> None:
        job = self.job(job_uid)
        job.streams[worker] += 1
        if (agent := job.agents.get(worker)) is not None:
            job.agents[worker] = replace(agent, disconnected_since=None)

    def close_stream(self, job_uid: str, worker: str, now: float, *, dropped: bool) -> None:
        """Records a stream's end; `dropped`: with its connection, which is a sign of loss."""
        job = self.job(job_uid)
        agent = job.agents.get(worker)
        if dropped and agent is not None and agent.state is AgentState.LEAVING:
            job.note_left(agent.round)  # the agent has ended
        job.streams[worker] -= 1
        if job.streams[worker] <= 0:
            del job.streams[worker]
            if dropped and agent is not None:
                job.agents[worker] = replace(agent, disconnected_since=now)

    def peer_stopped(self, job_uid: str, round_number: int) -> bool:
        """Whether a member has left a round, so that its collectives can no longer complete."""
        return round_number in self.job(job_uid).left_rounds

    def declare(self, job_uid: str, round_: Round) -> None:
        job = self.job(job_uid)
        job.answer = RoundAnswer(round_)
        job.failed = {worker for worker, agent in job.agents.items() if job.has_failed(agent)}
        job.announce()

    def nudge(self, job_uid: str, round_number: int) -> None:
        job = self.job(job_uid)
        if job.nudged_for != round_number:
            job.nudged_for = round_number
            job.ask_to_report()

    def ask_for_stacks(self, job_uid: str, round_number: int) -> None:
        job = self.job(job_uid)
        job.dump = round_number
        job.ask_to_report()

    def conclude(self, job_uid: str, verdict: str) -> None:
        job = self.job(job_uid)
        if job.verdict != verdict:
            job.verdict = verdict
            job.announce()


def _is_known(progress: Progress) -> tuple[bool, bool]:
    return progress.step is not None, progress.first_step is not None


def _first(known: float | None, reported: float | None) -> float | None:
    """The moment of the first report: the delay of a heartbeat varies."""
    return reported if known is None else known


def _set_up(known: AgentView | None, beat: AgentView) -> tuple[float | None, float | None]:
    prepared = known is not None and known.state is AgentState.PREPARING
    if beat.state is AgentState.PREPARING:
        return (known.set_up_since if known is not None and prepared else beat.heard_at), None
    if known is None:
        return None, None
    return known.set_up_since, beat.heard_at if prepared else known.set_up_until


def _speed(known: AgentView, beat: AgentView) -> float | None:
    """Steps per second, smoothed; as before if this heartbeat brings no new step."""
    before, after = known.progress.step, beat.progress.step
    seconds = beat.heard_at - known.progressed_at
    if before is None or after is None or after <= before or seconds <= 0:
        return known.steps_per_second
    measured = (after - before) / seconds
    if known.steps_per_second is None:
        return measured
    return SPEED_WEIGHT * measured + (1 - SPEED_WEIGHT) * known.steps_per_second
