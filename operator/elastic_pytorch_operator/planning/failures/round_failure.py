"""Finds the one failure that explains the others, once all members have reported or are lost.

docs/internals/rounds.md has the rules. A loss may become known a moment after its echoes, so echoes
alone count only after a later heartbeat of every member.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.model.failure import FailureRecord, Fault, record_of, root_cause
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.workers.liveness import Candidate, never_formed

ECHO_SECONDS = 1.0  # after the first echo, the heartbeats of a lost member have stopped


@dataclass(frozen=True, slots=True)
class RoundFailure:
    open: bool = False  # members are yet to report
    # None: nothing has failed, a lost member explains it, or it is not known yet.
    cause: FailureRecord | None = None
    echoes_only: bool = False  # all failures are echoes of something that no agent has reported


def judge_round(
    observed: Observed, candidates: Sequence[Candidate], again: Collection[str] = ()
) -> RoundFailure:
    """Returns why the current round has failed.

    Args:
        again: workers failed by a device where one had failed the job before. Such a failure
            counts, so that a job without another node ends.
    """
    round_ = observed.round
    if round_ is None or round_.size == 0:
        return RoundFailure()
    members = (c for c in candidates if c.worker in round_.ranks)
    # A torchrun that has given up has reported all that it knows.
    present = [c for c in members if c.ready or (c.failed and c.gives_up and c.gone)]
    failed_since = min((c.agent.state_since for c in present if c.failed), default=None)
    if failed_since is None:
        return RoundFailure()
    if any(not c.failed and c.agent.heard_at <= failed_since for c in present):
        return RoundFailure(open=True)
    if len(present) < round_.size:
        return RoundFailure()
    records = _records(observed, round_, [c.agent for c in present if c.failed])
    cause = root_cause(records)
    if cause is not None:
        counts = cause.worker in again and cause.fault is Fault.PLACE
        return RoundFailure(cause=replace(cause, fault=Fault.CODE) if counts else cause)
    if never_formed(round_.number, present):
        return RoundFailure()
    if any(c.agent.heard_at <= failed_since + ECHO_SECONDS for c in present if not c.gives_up):
        return RoundFailure(open=True)
    first = min(records, key=lambda record: (record.failed_at, record.worker))
    return RoundFailure(cause=replace(first, fault=Fault.CODE), echoes_only=True)


def _records(observed: Observed, round_: Round, failed: Sequence[AgentView]) -> list[FailureRecord]:
    agents = observed.took_up(round_)
    done = next((a for a in agents if a.state is AgentState.SUCCEEDED), None)
    if done is None:
        return [record_of(agent) for agent in failed]
    early = f"{done.worker} (rank {done.rank}) had returned while others still trained"
    records = []
    for agent in failed:
        record = record_of(agent)
        if record.fault is Fault.ECHO:  # its peer has gone, but it was not lost
            record = replace(record, message=f"{early}: {record.message}", fault=Fault.CODE)
        records.append(record)
    return records
