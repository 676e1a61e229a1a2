"""Decides everything about one job at one moment. Pure: no I/O, no clock, no randomness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator import names
from elastic_pytorch_operator.actions import Action, CreatePod, CreateService, DeletePod, PatchStatus, RecordEvent
from elastic_pytorch_operator.budget import Budget
from elastic_pytorch_operator.conditions import has_ended, is_true
from elastic_pytorch_operator.failures import collect_failures
from elastic_pytorch_operator.job import Job
from elastic_pytorch_operator.membership import Decision, next_round
from elastic_pytorch_operator.observed import AgentState, Observed
from elastic_pytorch_operator.recovery import Recovery, advance_recovery, begin_recovery
from elastic_pytorch_operator.replicas import Replicas, plan_replicas
from elastic_pytorch_operator.round import Round
from elastic_pytorch_operator.standing import Candidate, weigh
from elastic_pytorch_operator.status import Ending, describe_job, needs_write
from elastic_pytorch_operator.suspicion import nodes_to_avoid, suspect_nodes

LISTENING_SECONDS = 5.0  # after a start: agents try again every 2 s at most, so all that live have spoken by then
PROGRESS_WRITE_SECONDS = 3.0
EXIT_SECONDS = 10.0  # what agents get to exit by themselves once the job has ended


@dataclass(frozen=True, slots=True)
class Memory:
    """What the operator remembers of a job from one plan to the next; all of it can be lost without harm to the job.

    Attributes:
        suspects: nodes that have probably died, and since when that is suspected.
        refusal: what the API server last said when it refused to create a pod.
        refused_until: do not try again before.
        invalid: the template cannot make a pod, says the API server: why.
        written_at: when the status was last written.
        ended_at: when this operator first saw the job ended.
    """

    budget: Budget = field(default_factory=Budget)
    suspects: Mapping[str, float] = field(default_factory=dict)
    recovery: Recovery | None = None
    refusal: str = ""
    refused_until: float = 0.0
    invalid: str = ""
    written_at: float = 0.0
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done.

    Attributes:
        round: to be declared to the agents; None: the current one stands.
        nudge: ask the agents to speak at once.
        verdict: what to tell the agents of a job that has ended: `complete` or `failed`. Only after the actions have
            succeeded: what an agent acts upon must be in the cluster first.
        actions: in the order in which they are to be done; creates may go in parallel.
        memory: what to remember.
        recheck_at: when to plan again if nothing happens before, monotonic seconds.
    """

    memory: Memory
    round: Round | None = None
    nudge: bool = False
    verdict: str | None = None
    actions: tuple[Action, ...] = field(default_factory=tuple)
    recheck_at: float | None = None


def plan(job: Job, observed: Observed, memory: Memory) -> Plan:
    """Decides what to do for a job now.

    Deciding again on the outcome of having done it yields nothing more to do.
    """
    if job.deleting:
        return Plan(memory)  # the garbage collector removes what the job owns
    if has_ended(job.status):
        return _plan_ended(job, observed, memory)
    if not _everybody_spoke(observed):
        return Plan(memory, recheck_at=observed.listening_since + LISTENING_SECONDS)
    candidates = weigh(observed, suspects=memory.suspects)
    suspects = suspect_nodes(memory.suspects, observed, candidates)
    replicas = plan_replicas(observed.pods, observed.nodes, candidates, observed.round, job.wanted, suspects)
    if replicas.victims:
        candidates = weigh(observed, replicas.victims, suspects)
    memory = replace(memory, suspects=suspects, budget=_count_failures(observed, memory.budget))
    ending = _ending(job, observed, memory)
    decision = Decision() if ending else _decide_round(job, observed, candidates, memory)
    recovery = advance_recovery(memory.recovery, observed.round, observed.agents.values())
    if decision.round is not None:
        recovery = begin_recovery(observed.round, decision.round, observed, recovery)
    recovered = recovery is not None and recovery.seconds is not None and recovery != memory.recovery
    memory = replace(memory, recovery=recovery)
    round_ = decision.round or observed.round
    status = describe_job(
        job,
        observed,
        candidates,
        round_,
        budget=memory.budget,
        recovery=recovery,
        ending=ending,
        refusal=memory.refusal,
    )
    actions: list[Action] = []
    recheck = decision.recheck_at
    if ending is None:
        actions += _pod_actions(observed, replicas, round_, memory)
        if memory.refusal and replicas.create:
            recheck = min(recheck or memory.refused_until, memory.refused_until)
    actions += _story(observed, decision.round, recovery if recovered else None, ending)
    if needs_write(job.status, status):
        actions.append(PatchStatus(status))
    elif job.status.get("progress") != status.get("progress"):
        due = memory.written_at + PROGRESS_WRITE_SECONDS
        if observed.now >= due:
            actions.append(PatchStatus(status))
        else:
            recheck = min(recheck or due, due)
    verdict = None if ending is None else ("complete" if ending.complete else "failed")
    return Plan(memory, decision.round, decision.nudge, verdict, tuple(actions), recheck)


def _everybody_spoke(observed: Observed) -> bool:
    """Whether enough is known to call anybody lost: every agent has had the time to speak since this operator began to listen."""
    if observed.now >= observed.listening_since + LISTENING_SECONDS:
        return True
    running = [pod for pod in observed.pods if pod.started and not pod.ended and not pod.deleting]
    return all(pod.name in observed.agents for pod in running)


def _count_failures(observed: Observed, budget: Budget) -> Budget:
    members = observed.round.workers if observed.round else ()
    reports = [observed.agents[name].progress for name in members if name in observed.agents]
    step = max((r.step for r in reports if r.step is not None), default=None)
    checkpoint_step = max((r.checkpoint_step for r in reports if r.checkpoint_step is not None), default=None)
    failures = collect_failures(observed)
    lasted = observed.now - observed.round.declared_at if observed.round and observed.round.size else 0.0
    if step is not None:
        budget = budget.after_progress(step, checkpoint_step)
    elif not failures:
        budget = budget.after_steady_round(lasted)
    return budget.after_failures(failures, observed.now, lasted)


def _ending(job: Job, observed: Observed, memory: Memory) -> Ending | None:
    """How the job ends now, None if it goes on."""
    if memory.invalid:
        return Ending(False, names.INVALID_TEMPLATE, f"spec.template cannot make a pod: {memory.invalid}")
    round_ = observed.round
    if round_ is not None and round_.size > 0:
        done = [name for name in round_.workers if _has_succeeded(name, observed, round_.number)]
        if len(done) == round_.size:
            return Ending(True, names.WORKERS_SUCCEEDED, f"all {round_.size} workers of round {round_.number} have succeeded")
    budget = memory.budget
    if budget.failures > job.max_failures and budget.last is not None:
        text = f"{budget.failures} failures without progress, {job.max_failures} are allowed; the last: {budget.last}"
        return Ending(False, names.TOO_MANY_FAILURES, text, budget.last)
    return None


def _has_succeeded(worker: str, observed: Observed, number: int) -> bool:
    agent = observed.agents.get(worker)
    if agent is not None and agent.state is AgentState.SUCCEEDED and agent.round == number:
        return True
    return any(pod.name == worker and pod.exit_code == 0 and not pod.deleting for pod in observed.pods)


def _decide_round(job: Job, observed: Observed, candidates: Sequence[Candidate], memory: Memory) -> Decision:
    current = observed.round
    finishing = current is not None and any(_has_succeeded(name, observed, current.number) for name in current.workers)
    return next_round(
        current,
        candidates,
        wanted=job.wanted,
        minimum=job.minimum,
        settle_seconds=job.settle_seconds,
        default_port=job.store_port,
        now=observed.now,
        last_number=int(job.status.get("round", 0)),
        hold_until=memory.budget.hold_until,
        finishing=finishing,
    )


def _pod_actions(observed: Observed, replicas: Replicas, round_: Round | None, memory: Memory) -> list[Action]:
    actions: list[Action] = []
    if not observed.service_exists:
        actions.append(CreateService())
    if observed.now >= max(memory.refused_until, memory.budget.hold_until):
        avoid = nodes_to_avoid(memory.suspects, observed.nodes)
        actions += [CreatePod(index, avoid) for index in replicas.create]
    pods = {pod.name: pod for pod in observed.pods}
    members = round_.workers if round_ else ()
    for name in sorted(replicas.victims):
        if name not in members:
            actions.append(DeletePod(name, pods[name].uid, "is no longer wanted"))
    for pod in replicas.discard:
        if pod.name not in members:
            actions.append(DeletePod(pod.name, pod.uid, "no longer serves"))
    for pod in replicas.abandon:
        if pod.name not in members:
            force = pod.node not in observed.nodes
            actions.append(DeletePod(pod.name, pod.uid, f"was on node {pod.node}, which is lost", force=force))
    return actions


def _story(observed: Observed, declared: Round | None, recovered: Recovery | None, ending: Ending | None) -> list[Action]:
    """The events of this moment."""
    events: list[Action] = []
    if declared is not None:
        before = observed.round.size if observed.round else 0
        change = f"{before} -> {declared.size} workers" if before != declared.size else f"{declared.size} workers"
        warning = declared.reason in (names.WORKER_LOST, names.WORKER_FAILED, names.BELOW_MINIMUM)
        events.append(RecordEvent(declared.reason, f"Round {declared.number}, {change}: {declared.cause}", warning))
    if recovered is not None:
        size = observed.round.size if observed.round else 0
        lost = f", {recovered.steps_lost} steps are done again" if recovered.steps_lost else ""
        note = f"Trains again with {size} workers {recovered.seconds:.1f} s after {recovered.reason}{lost}"
        events.append(RecordEvent(names.TRAINING_RESUMED, note))
    if ending is not None:
        reason = names.JOB_COMPLETED if ending.complete else names.JOB_FAILED
        events.append(RecordEvent(reason, ending.message, not ending.complete))
    return events


def _plan_ended(job: Job, observed: Observed, memory: Memory) -> Plan:
    """Cleans up after a job that has ended: agents exit by themselves; what does not is deleted, as is what the policy says."""
    ended_at = observed.now if memory.ended_at is None else memory.ended_at
    actions: list[Action] = []
    recheck = None
    for pod in observed.pods:
        if pod.deleting:
            continue
        if pod.ended:
            if job.clean_pod_policy == "All":
                actions.append(DeletePod(pod.name, pod.uid, "the job has ended"))
        elif not pod.started and pod.name not in observed.agents:
            actions.append(DeletePod(pod.name, pod.uid, "the job has ended before it started"))
        elif observed.now < ended_at + EXIT_SECONDS:
            recheck = ended_at + EXIT_SECONDS
        elif job.clean_pod_policy != "None":
            actions.append(DeletePod(pod.name, pod.uid, "the job has ended"))
    verdict = "complete" if is_true(job.status, names.COMPLETE) else "failed"
    return Plan(replace(memory, ended_at=ended_at), None, False, verdict, tuple(actions), recheck)
