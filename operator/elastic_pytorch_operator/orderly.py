"""Since when has nobody been lost? It tells an agent that is rounds behind whether the group it trains in is still whole.

Only a whole group reaches its next step boundary: a collective needs everybody. So workers may train on towards it when all members of
their round were alive as each later round was declared, and must be stopped at once when they were not.
"""

from collections.abc import Sequence

from elastic_pytorch_operator.round import Round
from elastic_pytorch_operator.standing import SILENCE_SECONDS, Candidate, Standing, never_formed


def orderly_since(before: Round | None, candidates: Sequence[Candidate], number: int, *, now: float, stuck: bool) -> int:
    """The oldest round since which every member of every round was alive when the next one was declared.

    Args:
        before: the round that the new one follows; None: there was none.
        candidates: all workers of the job, weighed.
        number: of the new round.
        now: monotonic seconds.
        stuck: the members of `before` are not all at work, though alive: their group hangs, or some have finished.

    Returns:
        The number of that round; the new round's own if somebody was lost before it, or nobody trained.
    """
    if before is None or before.size == 0 or stuck:
        return number
    by_name = {candidate.worker: candidate for candidate in candidates}
    members = [by_name[worker] for worker in before.workers if worker in by_name]
    # Whoever has begun with a group that never formed takes nothing away from the group before, which still trains.
    outside = never_formed(before.number, members)
    whole = len(members) == before.size  # else some have been deleted, or a restarted operator has not heard of them
    harmless = (outside and _began_with(before.number, member) for member in members)
    fine = (_is_at_work(member, now) or apart for member, apart in zip(members, harmless, strict=True))
    return before.orderly_since if whole and all(fine) else number


def _began_with(number: int, member: Candidate) -> bool:
    """Whether a member has nothing to do with the rounds before this one: it is new in it, or has left them at their end."""
    return member.round == number and (member.failed or member.restarts == 0)


def _is_at_work(member: Candidate, now: float) -> bool:
    if member.failed:
        return False
    if member.standing is Standing.LEAVING:
        return now - member.heard_at <= SILENCE_SECONDS  # it may have left, or died, before this was decided
    return member.standing is Standing.READY
