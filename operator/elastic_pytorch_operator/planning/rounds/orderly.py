"""Finds since when no member has been lost, as only a whole group reaches its next step boundary.

By this, an agent that is rounds behind knows whether its workers may train on towards it, or must
stop at once.
"""

from collections.abc import Iterable, Sequence

from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness, never_formed
from elastic_pytorch_operator.planning.workers.silence import SILENCE_SECONDS


def order_of(
    before: Round | None, candidates: Sequence[Candidate], number: int, *, now: float, stuck: bool
) -> tuple[int, tuple[int, ...]]:
    """Returns `Round.orderly_since` and `Round.unformed`.

    If members of `before` are `stuck`, alive but not at work, no change is orderly.
    """
    if before is None or before.size == 0 or stuck:
        return number, ()
    by_name = {candidate.worker: candidate for candidate in candidates}
    members = [by_name[worker] for worker in before.ranks if worker in by_name]
    lost = [member for member in members if not _is_at_work(member, now)]
    if len(members) < before.size:  # some are deleted, or unknown to a restarted operator
        return number, ()
    if not lost:
        return before.orderly_since, before.unformed
    began = all(_began_with(before.number, member) for member in lost)
    if began and never_formed(before.number, members):
        return before.orderly_since, (*before.unformed, before.number)
    return number, ()


def keeps_all_since(before: Round | None, members: Iterable[str], number: int) -> int:
    if before is None or len(before.ranks) < before.size or not before.ranks.keys() <= set(members):
        return number
    return before.keeps_all_since


def _began_with(number: int, member: Candidate) -> bool:
    """Whether a member is new in a round, or left the rounds before at their end."""
    return member.agent.round == number and (member.failed or member.agent.restarts == 0)


def _is_at_work(member: Candidate, now: float) -> bool:
    if member.failed:
        return False
    if member.liveness is Liveness.LEAVING:
        # It may have left, or died, before this was decided.
        return now - member.agent.heard_at <= SILENCE_SECONDS
    return member.ready
