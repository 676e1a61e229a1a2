"""How the pod of a stock worker has ended, by its exit code and its last words.

Stock torchrun exits with 1 in all cases: on SIGTERM, with lost peers, without a store, with a
script that raises. Only the kubelet's termination message, the end of its log, tells them apart.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from elastic_pytorch_operator.model.failure import (
    KILLED_CODES,
    OOM_KILLED,
    RUNTIME_REASONS,
    FailureRecord,
    describe_end,
)
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.peer_errors import is_peer_error
from elastic_pytorch_operator.spec.failure_rules import to_kubelet_code

USAGE_EXIT_CODE = 2  # torchrun does not understand its options: it has joined nothing
SIGNAL_EXIT_CODES = 126  # and above: not started, or ended by a signal, without notice to peers

STOPPED = re.compile(r"SignalException: Process \d+ got signal")
# The second is torch's error for a surplus worker whose peers are done.
TOO_LATE = re.compile(r"RendezvousClosedError|RendezvousGracefulExitError|no attribute 'is_failed'")
NO_RENDEZVOUS = re.compile(r"Rendezvous(Connection|Timeout|State)Error|Dist(Store|Network)Error")
GAVE_UP = "ChildFailedError"
# gloo's advice, which may be all of its error that is left
PEER_GONE = "caused by a remote worker crashing"
EXCEPTION = re.compile(r"^(\[rank\d+\]: )?[\w.]*(Error|Exception|Interrupt|Exit)\b", re.MULTILINE)

# Torchrun prints these when it gives up, after the script's own output.
_CHILD_LOG = re.compile(r"^E\d{4} .*failed \(exitcode: ", re.MULTILINE)
_RECORDED = re.compile(r"^ *traceback : (?=Traceback )", re.MULTILINE)
_RULE = re.compile(r"^=+$", re.MULTILINE)
# The status takes no larger numbers, and a script may print any.
_RANK = re.compile(r"^ *rank +: (\d{1,9})\b", re.MULTILINE)
_EXIT = re.compile(r"^ *exitcode +: (-?\d{1,9}) \(pid: (\d{1,10})\)", re.MULTILINE)
_SIGNAL = re.compile(r"Signal \d+ \((SIG\w+)\)")


class Manner(StrEnum):
    SUCCEEDED = "succeeded"
    NOT_STARTED = "not started"  # refused by the kubelet or the container runtime
    LOST = "lost"  # stopped from outside: deleted, drained, killed
    RENDEZVOUS_CLOSED = "rendezvous closed"
    STORE_UNREACHABLE = "store unreachable"
    PEER_LOST = "peer lost"  # failed with a lost peer more often than torchrun restarts workers
    BROKEN = "broken"  # its own fault, but the rendezvous stands: it never joined, or died silently
    FAILED = "failed"  # its own fault, and it has closed the rendezvous


CLOSING = (Manner.RENDEZVOUS_CLOSED, Manner.STORE_UNREACHABLE, Manner.PEER_LOST, Manner.FAILED)


@dataclass(frozen=True, slots=True)
class End:
    pod: PodView
    manner: Manner
    gave_up: bool  # torchrun has restarted the script as often as it may
    telling: bool  # the record names the fault
    record: FailureRecord


def read_end(pod: PodView, now: float) -> End:
    """`now` stands for the time of the failure."""
    message = pod.exit_message
    signal = _SIGNAL.search(message)
    rank, exited = _RANK.search(message), _EXIT.search(message)
    record = FailureRecord(
        worker=pod.name,
        rank=int(rank[1]) if rank else None,
        exit_code=to_kubelet_code(int(exited[1])) if exited else pod.exit_code,
        signal=signal[1] if signal else "",
        message=last_words(message) or f"the container {describe_end(pod)}",
        failed_at=now,
        pod_uid=pod.uid,
        pid=int(exited[2]) if exited else None,
        oom_killed=pod.exit_reason == OOM_KILLED,
    )
    telling = bool(record.signal or EXCEPTION.search(record.message))
    return End(pod, _manner(pod, record), GAVE_UP in message, telling, record)


def last_words(message: str) -> str:
    """The end of the script's own output, without torchrun's traceback, which never differs."""
    # A pattern of both would search the whole rest from each place where one may begin.
    begun = _RECORDED.search(message)
    over = _RULE.search(message, begun.end()) if begun else None
    if begun and over:
        return message[begun.end() : over.start()].strip()
    given_up = _CHILD_LOG.search(message)
    said = message[: given_up.start()] if given_up else message
    return said.strip() or message.strip()


def _manner(pod: PodView, record: FailureRecord) -> Manner:
    message = pod.exit_message
    if (pod.deleting and not pod.ended_before_deletion) or pod.disrupted:
        return Manner.LOST
    if pod.exit_code is None or pod.exit_reason in RUNTIME_REASONS:
        return Manner.NOT_STARTED
    if pod.exit_code == 0:
        return Manner.SUCCEEDED
    if pod.exit_reason == OOM_KILLED:
        return Manner.BROKEN
    if pod.exit_code in KILLED_CODES or STOPPED.search(message):
        return Manner.LOST
    if GAVE_UP in message:
        broken_off = is_peer_error(record.message) or PEER_GONE in record.message
        symptom = record.signal == "SIGTERM" or (not record.signal and broken_off)
        return Manner.PEER_LOST if symptom else Manner.FAILED
    if TOO_LATE.search(message):
        return Manner.RENDEZVOUS_CLOSED
    if NO_RENDEZVOUS.search(message):
        return Manner.STORE_UNREACHABLE
    if pod.exit_code == USAGE_EXIT_CODE or pod.exit_code >= SIGNAL_EXIT_CODES:
        return Manner.BROKEN
    return Manner.FAILED
