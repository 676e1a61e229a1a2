"""The workers in a job's status: a bounded list, and the indexes of the others by state.

A list of 4,000 workers would be a third of the largest object that etcd takes, and is written as a
whole whenever one of them changes.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.numbers import format_ranges
from elastic_pytorch_operator.model.known_workers import HEARD_STATES, newest_by_index
from elastic_pytorch_operator.model.observed import AgentState, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.planning.workers.process_counts import differs, processes_each
from elastic_pytorch_operator.spec.job import Job

MAX_LISTED = 128
PREPARING = "Preparing"
CALM_STATES = ("Running", "Spare", "Succeeded")


def describe_workers(
    candidates: Sequence[Candidate],
    job: Job,
    observed: Observed,
    round_: Round | None,
    wanted: int,
    torn: Container[str],
) -> tuple[dict[str, Any], str]:
    """The fields `workers` and `unlistedWorkers`, and the operator state's `newest_pod_time`.

    A new leader needs to know of all workers whose agents have reported, so `unlistedWorkers` has
    the index of each other worker once.
    """
    whole = round_ is not None and round_.size >= wanted > 0
    left_out = "Spare" if job.spares and whole else "Ready"
    processes = processes_each(round_.ranks if round_ else (), candidates)
    there = sorted((c for c in candidates if c.index >= 0), key=lambda c: (c.index, c.worker))
    idle = {c.worker: "Ready" if c.worker in torn else left_out for c in there}
    states = {c.worker: _state(c, observed, round_, idle[c.worker]) for c in there}

    def entries(workers: Iterable[Candidate]) -> list[dict[str, Any]]:
        return [_worker(c, states[c.worker], job, observed, round_, processes) for c in workers]

    if len(there) <= MAX_LISTED:
        return {"workers": entries(there)}, ""
    pods = observed.pods_by_name
    last = newest_by_index(pods[c.worker] for c in there)
    newest = [c for c in there if last[c.index].name == c.worker]
    replaced = [c for c in there if last[c.index].name != c.worker]
    restless = [c for c in newest if states[c.worker] not in CALM_STATES]
    calm = [c for c in newest if states[c.worker] in CALM_STATES]
    listed = {c.worker for c in [*restless, *calm, *replaced][:MAX_LISTED]}
    others = [c for c in newest if c.worker not in listed]
    found: dict[str, Any] = {"workers": entries(c for c in there if c.worker in listed)}
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for candidate in others:
        indexes[states[candidate.worker]].append(candidate.index)
    if indexes:
        ranges = {state: format_ranges(indexes[state]) for state in sorted(indexes)}
        found["unlistedWorkers"] = ranges
    heard = (c.worker for c in others if states[c.worker] in HEARD_STATES)
    times = (pods[worker].creation_time for worker in heard)
    return found, max(times, default="")


def _worker(
    candidate: Candidate,
    state: str,
    job: Job,
    observed: Observed,
    round_: Round | None,
    processes: int,
) -> dict[str, Any]:
    pod = observed.pods_by_name[candidate.worker]
    rank = round_.ranks.get(candidate.worker) if round_ else None
    worker: dict[str, Any] = {"name": candidate.worker, "index": candidate.index}
    if rank is not None and not job.stock:  # stock torchrun ranks the workers as it likes
        worker["rank"] = rank
    if pod.node:
        worker["node"] = pod.node
    if differs(candidate, processes):
        worker["processes"] = candidate.processes
    worker["state"] = state
    if state in (PREPARING, names.SAVING):
        agent = candidate.agent
        begun_at = agent.set_up_since if state == PREPARING else agent.saving_since
        worker["stateSince"] = _since(candidate.worker, state, begun_at, job, observed)
    return worker


def _since(worker: str, state: str, begun_at: float | None, job: Job, observed: Observed) -> str:
    """RFC 3339, as first written: a later leader has not seen the state begin."""
    workers = job.status.get("workers") or ()
    listed = (old for old in workers if (old.get("name"), old.get("state")) == (worker, state))
    if known := next((old.get("stateSince") for old in listed), None):
        return str(known)
    return observed.time_of(observed.now if begun_at is None else begun_at)


def _state(candidate: Candidate, observed: Observed, round_: Round | None, left_out: str) -> str:
    if candidate.ready:
        # Failed and stopping agents run again within milliseconds, which is not worth a write.
        if candidate.agent.state is AgentState.SUCCEEDED:
            return "Succeeded"
        if candidate.agent.saving_since is not None:
            return names.SAVING
        return "Running" if round_ is not None and candidate.worker in round_.ranks else left_out
    if candidate.succeeded and observed.pods_by_name[candidate.worker].exit_code == 0:
        return "Succeeded"
    if candidate.unheard:
        return "Silent"
    if candidate.alive and candidate.agent.state is AgentState.PREPARING:
        return PREPARING
    words = {Liveness.STARTING: "Starting", Liveness.LEAVING: "Leaving"}
    return words.get(candidate.liveness, "Lost")
