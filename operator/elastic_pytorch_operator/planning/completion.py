"""Decides whether a job ends now, complete or failed."""

from collections.abc import Sequence

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.failure import Ending, FailureRecord, has_spoken, has_succeeded
from elastic_pytorch_operator.model.known_workers import known_workers
from elastic_pytorch_operator.model.observed import NEVER, Observed, PodView
from elastic_pytorch_operator.planning.failures.start_backoff import FailedStarts, why_given_up
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.spec.job import FAIL_JOB, Job

NO_AGENT = (
    "It never joined the job: its `command` starts neither the agent nor torchrun, "
    "or hides how that has failed (see its log). "
    'Remove `command` and name the script in `args` (args: ["train.py"]), '
    'or start it by torchrun (command: ["torchrun", "train.py"])'
)
# Registries and webhooks may fail for minutes; a missing image stays missing.
GIVE_UP_SECONDS = 300.0


def decide_ending(
    job: Job,
    target: Target,
    observed: Observed,
    candidates: Sequence[Candidate],
    memory: Memory,
    starts: FailedStarts,
) -> tuple[Ending | None, float | None]:
    """The ending, None if the job goes on, and when to decide again."""
    budget, invalid = memory.budget, memory.answers.invalid
    since, seconds = memory.active_since, job.active_deadline_seconds
    deadline = None if since is None or seconds is None else since + seconds

    def fail(reason: str, message: str, cause: FailureRecord | None = None) -> tuple[Ending, None]:
        return Ending(False, reason, message, cause), None

    if invalid is not None:
        what = "spec.template cannot make a pod"
        if invalid.startswith("PersistentVolumeClaim"):
            what = "spec.sharedVolumeClaims cannot make a claim"
        return fail(names.INVALID_TEMPLATE, f"{what}: {invalid}")
    round_ = observed.round
    succeeded = sum(has_succeeded(name, observed) for name in observed.ranks)
    if round_ is not None and succeeded == round_.size > 0:
        text = f"all {succeeded} workers of round {round_.number} have succeeded"
        return Ending(True, names.WORKERS_SUCCEEDED, text), None
    first = round_ is None and not job.status.get("round")
    if first and not job.stock and (text := _never_joined(observed)):
        return fail(names.NEVER_JOINED, text)
    if budget.fatal is not None:
        text = f"{budget.fatal.rule} fails the job: {budget.fatal}"
        return fail(names.FAILURE_POLICY_RULE, text, budget.fatal)
    if budget.failures > job.max_failures and budget.last is not None:
        heard = observed.agents or observed.heard_before
        if first and not job.stock and budget.last.pod_uid and not heard:
            return fail(names.NEVER_JOINED, f"{budget.last}. {NO_AGENT}", budget.last)
        allowed = f"failurePolicy.maxFailures allows {job.max_failures}"
        text = f"{_failures(budget.failures)} without progress, {allowed}; the last: {budget.last}"
        return fail(names.TOO_MANY_FAILURES, text, budget.last)
    if job.backoff_limit is not None and budget.total > job.backoff_limit:
        last = f"; the last: {budget.last}" if budget.last else ""
        count = f"{_failures(budget.total)} since the job began"
        text = f"{count}, failurePolicy.backoffLimit allows {job.backoff_limit}{last}"
        return fail(names.BACKOFF_LIMIT_EXCEEDED, text, budget.last)
    fails = job.on_pod_loss == FAIL_JOB
    if fails and (lost := _lost_members(job, observed, candidates, memory)):
        text = f"{'; '.join(lost)} (failurePolicy.onPodLoss is {FAIL_JOB})"
        return fail(names.POD_LOST, text)
    saves = observed.saving_since
    save_by = None if saves is None else saves + job.save_deadline_seconds
    if save_by is not None and observed.now >= save_by:
        return fail(names.LAST_CHECKPOINT_NOT_WRITTEN, _why_not_written(job, observed))
    if deadline is not None and observed.now >= deadline:
        text = f"the job has not ended within activeDeadlineSeconds ({seconds})"
        return fail(names.DEADLINE_EXCEEDED, text, budget.last)
    if first:
        why, recheck = why_it_cannot_start((*observed.pods, *observed.stores), observed.now)
        why = why or why_given_up(starts, observed, target.size, job.max_failures)
        if why:
            return fail(names.CANNOT_START, why)
        return None, earliest(recheck, deadline)
    return None, earliest(save_by, deadline)


def _why_not_written(job: Job, observed: Observed) -> str:
    errors = (agent.progress.save_error for agent in observed.agents_in(observed.round))
    error = next((f": {error}" for error in errors if error), "")
    deadline = f"saveDeadlineSeconds ({job.save_deadline_seconds})"
    return f"the last checkpoint was not written within {deadline}{error}"


def _failures(count: int) -> str:
    return "1 failure" if count == 1 else f"{count} failures"


def _never_joined(observed: Observed) -> str:
    for pod in observed.pods:
        known = pod.deleting or pod.ended_before_takeover or has_spoken(pod, observed)
        if pod.exit_code == 0 and not known:
            return f"{pod.name} has ended with exit code 0. {NO_AGENT}"
    return ""


def _lost_members(
    job: Job, observed: Observed, candidates: Sequence[Candidate], memory: Memory
) -> list[str]:
    """With rules on conditions, SIGTERM alone is no loss: these will say why the pod ends."""
    excepted = {*memory.victims, *memory.excused}
    members = observed.ranks
    waits = any(rule.conditions for rule in job.rules)
    known = {pod.name for pod in observed.pods if not waits or pod.deleting or pod.ended}
    lost = [
        f"{c.worker} {c.why}"
        for c in candidates
        if (c.worker in members or (waits and c.worker in memory.leaving))
        and c.worker not in excepted
        and (c.gone or (c.liveness is Liveness.LEAVING and c.worker in known))
        and not c.succeeded
    ]
    # A new leader's round has only the members that have reported to it; the status names the rest.
    size = observed.round.size if observed.round else int(bool(job.status.get("worldSize")))
    if len(members) < size:
        accounted_for = {*members, *excepted, *(c.worker for c in candidates if c.alive)}
        lost += [
            f"{worker.name} was lost while the leader of the operator changed"
            for worker in known_workers(job.status, observed.pods)
            if worker.ranked and worker.name not in accounted_for
        ]
    return lost


def why_it_cannot_start(pods: Sequence[PodView], now: float) -> tuple[str, float | None]:
    """Why no container of a job that never had a round can be created; and when to look again."""
    waiting = [pod for pod in pods if pod.stays]
    if not waiting or any(pod.started or not pod.stuck for pod in waiting):
        return "", None
    first = min(waiting, key=lambda pod: (pod.stuck_since, pod.created_at))
    hopeless_at = first.stuck_since + GIVE_UP_SECONDS
    if now < hopeless_at and not any(pod.waiting_reason in NEVER for pod in waiting):
        return "", hopeless_at
    why = f"no worker can start: {first.waiting}; correct spec.template and create the job again"
    return why, None
