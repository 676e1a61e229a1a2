"""The plan of a job whose group stock torchrun forms: without agents, by pods and nodes alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.actions import (
    Action,
    CreatePod,
    CreateService,
    CreateStore,
    DeletePod,
    RecordEvent,
    TryPod,
)
from elastic_pytorch_operator.model.failure import (
    Ending,
    FailureRecord,
    Fault,
    fault_of_pod,
    name_end,
)
from elastic_pytorch_operator.model.observed import Observed, PodView
from elastic_pytorch_operator.planning.completion import decide_ending
from elastic_pytorch_operator.planning.failed_writes import lasting, wants_dry_run
from elastic_pytorch_operator.planning.failures.budget import (
    CRASH_LOOP_SECONDS,
    Budget,
    action_on,
    backoff_seconds,
)
from elastic_pytorch_operator.planning.failures.failed_pods import (
    excused_members,
    judge_pods,
    rule_on_worker,
)
from elastic_pytorch_operator.planning.failures.start_backoff import (
    FailedStarts,
    find_failed_starts,
)
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.nodes.objections import find_objections
from elastic_pytorch_operator.planning.queueing.quota import Target, displaced_pods
from elastic_pytorch_operator.planning.reporting.events import News, record_events
from elastic_pytorch_operator.planning.reporting.goodput import keep_account
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job
from elastic_pytorch_operator.planning.reporting.status_writes import status_write
from elastic_pytorch_operator.planning.stock.group import StockMemory, adopt_group, next_group
from elastic_pytorch_operator.planning.stock.pod_exits import CLOSING, End, Manner, read_end
from elastic_pytorch_operator.planning.stock.rendezvous import (
    Phase,
    Rendezvous,
    current_number,
    delete_stores,
    judge_rendezvous,
)
from elastic_pytorch_operator.planning.workers.liveness import (
    Candidate,
    assess_workers,
    has_lost_node,
)
from elastic_pytorch_operator.planning.workers.worker_pods import (
    Going,
    Replicas,
    plan_pod_group,
    plan_replicas,
)
from elastic_pytorch_operator.spec.failure_rules import FailureAction
from elastic_pytorch_operator.spec.job import Job

# After the first worker has ended, the others end within this time, and any may know why.
EXIT_REPORT_SECONDS = 5.0
STEADY_SECONDS = 60.0  # another rendezvous may follow one of this length at once


@dataclass(frozen=True, slots=True)
class _View:
    job: Job
    target: Target
    observed: Observed  # its round is the group as last reported
    candidates: tuple[Candidate, ...]  # those that run are ready
    lost: frozenset[str]  # pods of workers and stores whose end no node will ever report
    running: tuple[PodView, ...]  # of the current rendezvous
    ends: tuple[End, ...]  # of all that have ended
    rendezvous: Rendezvous
    starts: FailedStarts

    def alive(self, pods: Iterable[PodView]) -> list[PodView]:
        return [pod for pod in pods if not pod.ended and pod.name not in self.lost]


def plan_stock(job: Job, target: Target, observed: Observed, memory: Memory) -> Plan:
    view, stock = _look(job, target, observed, memory)
    objections = find_objections(job, view.observed, view.candidates, view.starts, ())
    doubted = {each.node for each in objections}
    going = Going(displaced=displaced_pods(job, observed, target.quota), doubted=doubted)
    # Ended pods are kept for their logs.
    pods = (p for p in observed.pods if p.ended or p.rendezvous == stock.rendezvous)
    serving = replace(view.observed, pods=tuple(pods))
    replicas = plan_replicas(job, target, serving, view.candidates, going)
    there = observed.pods_by_name.keys() | view.observed.ranks.keys()
    victims = (memory.victims | replicas.victims) & there
    ended = [_judged(end) for end in view.ends if end.manner not in (*CLOSING, Manner.SUCCEEDED)]
    failed = judge_pods(view.observed, view.candidates, job.rules, ended, victims)
    budget, stock, events = _understand(view, memory.budget, stock, failed)
    group, settled_at = next_group(
        job,
        target,
        stock.group,
        view.running,
        {c.worker: c.why for c in view.candidates},
        victims,
        observed.now,
    )
    stock = replace(stock, group=group)
    before = memory.budget
    excused = excused_members(view.observed, memory.excused, failed)
    memory = replace(
        memory,
        answers=memory.answers.about(job.generation),
        budget=budget,
        stock=stock,
        victims=victims,
        excused=excused,
        active_since=memory.begin_active(observed.now, stopped=target.stopped),
    )
    ending, ending_recheck = _decide_ending(view, stock, memory)
    findings = Findings(
        budget, target, ending=ending, refusals=lasting(memory.answers.failed), starts=view.starts
    )
    status = describe_job(job, observed, view.candidates, group.round, findings)
    account = keep_account(job, status, observed, group.round, memory.account)
    actions: list[Action] = []
    rechecks = [settled_at, ending_recheck]
    if ending is None:
        actions += [*_pod_actions(view, replicas, stock, memory), *events]
        pauses = [view.starts.backoff_until.get(index, 0.0) for index in replicas.create]
        over_at = stock.over_since + EXIT_REPORT_SECONDS if stock.over_since is not None else 0.0
        times = (over_at, stock.backoff_until, budget.backoff_until, *pauses)
        rechecks += [time for time in times if time > observed.now]
    declared = group.round if group.round is not view.observed.round else None
    failure, refusals = budget.new_cause(before), memory.answers.unreported
    news = News(declared, ending=ending, refusals=refusals, failed=failure)
    actions += record_events(job, target, view.observed, news)
    write, write_at = status_write(job, status, account, observed, memory.written)
    memory = replace(memory, answers=memory.answers.reported(), account=account)
    return Plan(memory, actions=(*actions, *write), recheck_at=earliest(*rechecks, write_at))


def _look(
    job: Job, target: Target, observed: Observed, memory: Memory
) -> tuple[_View, StockMemory]:
    now, number, known = observed.now, current_number(job, observed), memory.stock
    observed = replace(observed, round=known.group.round if known else None)
    pods = (*observed.pods, *observed.stores)
    lost = frozenset(pod.name for pod in pods if not pod.ended and has_lost_node(pod, observed))
    mine = [pod for pod in observed.pods if pod.rendezvous == number and pod.name not in lost]
    running = [pod for pod in mine if pod.started and pod.stays]
    if known is None:
        stock = StockMemory(
            number, now, disturbed=bool(observed.pods), group=adopt_group(job, running, now)
        )
        observed = replace(observed, round=stock.group.round)
    elif known.rendezvous != number:
        lasted = (known.over_since or now) - known.since
        row = known.in_a_row + 1 if lasted < STEADY_SECONDS else 0
        stock = StockMemory(number, now, disturbed=False, group=known.group, in_a_row=row)
    else:
        there = {pod.name for pod in (*running, *(pod for pod in observed.pods if pod.ended))}
        stock = replace(known, disturbed=known.disturbed or not known.group.running <= there)
    ends = tuple(read_end(pod, now) for pod in observed.pods if pod.ended)
    rendezvous = judge_rendezvous(job, observed, ends, lost, number, disturbed=stock.disturbed)
    if rendezvous.phase in (Phase.FINISHING, Phase.DONE):
        running += [pod for pod in observed.pods if pod.rendezvous == number and pod.succeeded]
    elif rendezvous.phase is Phase.OVER:
        running = []  # none that still runs will be in the next group
    candidates, starts = assess_workers(observed), find_failed_starts(observed)
    view = _View(job, target, observed, candidates, lost, tuple(running), ends, rendezvous, starts)
    return view, stock


def _understand(
    view: _View, budget: Budget, stock: StockMemory, pods: Sequence[FailureRecord]
) -> tuple[Budget, StockMemory, list[Action]]:
    """Counts failures of the job's own code: a rendezvous once, and pods that did not end one."""
    now, rendezvous = view.observed.now, view.rendezvous
    over = rendezvous.phase is Phase.OVER
    if not over and all(record.pod_uid in budget.counted_pods for record in pods):
        budget = budget.after_steady_round(now - stock.since)
    there = [pod.uid for pod in view.observed.pods]
    budget = budget.after_pods(pods, there, now, back_off=now - stock.since < CRASH_LOOP_SECONDS)
    if not over:
        return budget, stock, []
    if stock.over_since is None:
        backoff = backoff_seconds(stock.in_a_row + 1) if now - stock.since < STEADY_SECONDS else 0.0
        stock = replace(stock, over_since=now, backoff_until=now + backoff)
    if stock.understood or not _exits_collected(view, stock):
        return budget, stock, []
    cause = rendezvous.cause
    if cause is not None and rendezvous.counts and not cause.pod.ended_before_takeover:
        record = rule_on_worker(cause.record, view.observed, view.job.rules)
        budget = budget.after_round(stock.rendezvous, record, now, back_off=True)
        # Torchrun itself has restarted the script as often as the job allows.
        if cause.gave_up and action_on(record) is FailureAction.COUNT:
            budget = replace(budget, failures=max(budget.failures, view.job.max_failures + 1))
    note = f"Rendezvous {stock.rendezvous} is over, all workers begin a new one: {rendezvous.why}"
    event = RecordEvent(names.RENDEZVOUS_OVER, note, warning=True)
    return budget, replace(stock, understood=True), [event]


def _exits_collected(view: _View, stock: StockMemory) -> bool:
    assert stock.over_since is not None
    if view.observed.now >= stock.over_since + EXIT_REPORT_SECONDS:
        return True
    started = (pod for pod in view.alive(view.observed.pods) if pod.started)
    return not any(pod.rendezvous == stock.rendezvous for pod in started)


def _decide_ending(
    view: _View, stock: StockMemory, memory: Memory
) -> tuple[Ending | None, float | None]:
    if view.rendezvous.phase is Phase.DONE:
        done = len(view.running)
        text = f"{done} worker{'s have' if done > 1 else ' has'} succeeded"
        return Ending(True, names.WORKERS_SUCCEEDED, text), None
    if view.rendezvous.phase is Phase.OVER and not stock.understood:
        return None, None
    return decide_ending(view.job, view.target, view.observed, view.candidates, memory, view.starts)


def _judged(end: End) -> FailureRecord:
    if end.manner is Manner.BROKEN:
        return end.record
    if fault_of_pod(end.pod, spoken=True) is not Fault.OUTSIDE:
        return replace(end.record, fault=Fault.PLACE)
    return replace(end.record, fault=Fault.OUTSIDE, end=name_end(end.pod))


def _pod_actions(
    view: _View, replicas: Replicas, stock: StockMemory, memory: Memory
) -> list[Action]:
    job, observed, number = view.job, view.observed, stock.rendezvous
    gang = plan_pod_group(job, view.target, observed, memory.answers.failed)
    backing_off = observed.now < max(memory.budget.backoff_until, stock.backoff_until)
    may_create = not view.target.stopped and not backing_off and not gang.holds_pods
    actions: list[Action] = [*gang.actions, *([] if observed.service_exists else [CreateService()])]
    keep = 0 if view.target.stopped and not view.alive(observed.pods) else number
    others = (pod.name for pod in observed.pods if pod.rendezvous != number)
    doomed = dict.fromkeys(others, "belongs to a rendezvous that is over")
    match view.rendezvous.phase:
        case Phase.OPEN:
            stores = [s for s in view.alive(observed.stores) if s.rendezvous == number]
            store = next((s for s in stores if not s.deleting), None)
            if job.backend == names.BACKEND_C10D and store is None:
                actions += [CreateStore(number)] if may_create else []
            elif may_create and (store is None or store.started):
                starts = view.starts
                actions += [
                    CreatePod(i, rendezvous=number, failed_starts=starts.nodes.get(i, ()))
                    for i in replicas.create
                    if observed.now >= starts.backoff_until.get(i, 0.0)
                ]
            doomed |= dict.fromkeys(replicas.victims, "is no longer wanted")
            doomed |= {pod.name: "no longer serves" for pod in replicas.discard}
        case Phase.OVER if stock.understood:
            if not view.alive(observed.pods) and may_create:
                round_ = stock.group.round
                last = round_.number if round_ else int(job.status.get("round", 0))
                new, keep = max(number, last) + 1, 0
                if job.backend == names.BACKEND_C10D:  # workers come once the store runs
                    actions.append(CreateStore(new))
                else:
                    indices = range(view.target.size)
                    actions += [CreatePod(index, rendezvous=new) for index in indices]
            over = view.alive(observed.pods) if not view.target.stopped else observed.pods
            doomed |= {pod.name: f"cannot go on: {view.rendezvous.why}" for pod in over}
    made = any(isinstance(action, CreatePod) for action in actions)
    if not made and wants_dry_run(job, view.target, observed, memory.answers):
        actions.append(TryPod())
    discarded = {pod.name for pod in replicas.discard}
    actions += delete_stores(observed, keep=keep, why="it is no longer needed")
    for pod in observed.pods:
        removed = observed.on_removed_node(pod)
        if pod.name in view.lost and not pod.ended and (not pod.deleting or removed):
            why = f"was on node {pod.node}, which is lost"
            actions.append(DeletePod(pod.name, pod.uid, why, force=removed))
            continue
        goes = not pod.ended or pod.lingers or pod.name in discarded
        if pod.name in doomed and not pod.deleting and goes:
            actions.append(DeletePod(pod.name, pod.uid, doomed[pod.name]))
    return actions
