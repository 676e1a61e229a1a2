"""What has become of a stock rendezvous, as the ends of its pods show.

Stock torchrun closes its rendezvous when one of its agents ends, with success or without. It stays
closed, so a later worker can only join a new one.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.actions import DeletePod
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.stock.pod_exits import CLOSING, End, Manner
from elastic_pytorch_operator.spec.job import Job


class Phase(StrEnum):
    OPEN = "open"
    FINISHING = "finishing"  # a worker has succeeded, others still run
    DONE = "done"
    OVER = "over"  # not done, but no worker can use it any more


@dataclass(frozen=True, slots=True)
class Rendezvous:
    phase: Phase
    why: str = ""  # it has ended, for people
    cause: End | None = None  # of the worker to blame
    counts: bool = False  # as a failure of the job's own


def current_number(job: Job, observed: Observed) -> int:
    """Without pods, one more than there can have been."""
    known = max((pod.rendezvous for pod in (*observed.pods, *observed.stores)), default=0)
    return known or int(job.status.get("round", 0)) + 1


def judge_rendezvous(
    job: Job,
    observed: Observed,
    ends: Iterable[End],
    lost: Collection[str],
    number: int,
    *,
    disturbed: bool,
) -> Rendezvous:
    """`lost` pods have not ended, but are gone with their nodes."""
    pods = [pod for pod in observed.pods if pod.rendezvous == number]
    ends = [end for end in ends if end.pod.rendezvous == number]
    runs = [pod for pod in pods if pod.started and not pod.ended and pod.name not in lost]
    closing = [end for end in ends if end.manner in CLOSING]
    succeeded = [end for end in ends if end.manner is Manner.SUCCEEDED]
    disturbed = disturbed or any(end.manner is Manner.LOST for end in ends)
    guilty = [end for end in closing if end.manner is Manner.FAILED]
    guilty.sort(key=lambda end: (not end.gave_up, not end.telling))
    peer_lost = [end for end in closing if end.manner is Manner.PEER_LOST]
    if guilty:
        return Rendezvous(Phase.OVER, str(guilty[0].record), guilty[0], counts=True)
    if succeeded and runs:
        return Rendezvous(Phase.FINISHING)
    if succeeded and peer_lost:
        why = f"{succeeded[0].pod.name} had returned while others still trained"
        return Rendezvous(Phase.OVER, why, peer_lost[0], counts=True)
    if succeeded:
        # Workers that were shut out or lost were no longer in the group, whose members wait for
        # each other before they exit.
        return Rendezvous(Phase.DONE)
    if peer_lost and not disturbed:
        return Rendezvous(Phase.OVER, str(peer_lost[0].record), peer_lost[0], counts=True)
    stores = (s for s in observed.stores if s.rendezvous == number and s.name not in lost)
    stored = job.backend != names.BACKEND_C10D or any(not (s.ended or s.deleting) for s in stores)
    if pods and not stored:
        return Rendezvous(Phase.OVER, "the pod of its c10d store has been lost")
    if closing:
        first = (peer_lost or closing)[0]
        return Rendezvous(Phase.OVER, _blameless(first, disturbed), first)
    return Rendezvous(Phase.OPEN)


def _blameless(end: End, disturbed: bool) -> str:
    what = {
        Manner.PEER_LOST: "has lost peers more often than torchrun starts its workers again",
        Manner.STORE_UNREACHABLE: "could not reach the rendezvous' store",
        Manner.RENDEZVOUS_CLOSED: "found the rendezvous closed",
    }[end.manner]
    return f"{end.pod.name} {what}{', after a worker had been lost' if disturbed else ''}"


def delete_stores(observed: Observed, *, keep: int, why: str) -> list[DeletePod]:
    """Deletes the pods of all c10d stores but that of rendezvous `keep`; 0: of all."""
    return [
        DeletePod(store.name, store.uid, why, force=observed.on_removed_node(store))
        for store in observed.stores
        if store.rendezvous != keep and not store.deleting
    ]
