"""Whose write is next, and how many may be on their way: of all, and of each namespace. Pure: the time comes in.

A namespace takes a slot only while it has fewer writes on their way than slots are free (Choudhury and Hahne, "Dynamic Queue Length
Thresholds for Shared-Memory Packet Switches", 1998). So one whose webhook hangs holds half of the slots, two hold two thirds, and
another namespace finds a free one at once. Alone, a namespace needs no more than half: writes take milliseconds.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.ready_lists import URGENT_IN_A_ROW

Sender = TypeVar("Sender", bound=Hashable)

MAX_WRITES = 50  # by default: about what the API server's priority and fairness grants one client beside its others
MIN_WRITES = 2  # while the API server is in trouble: one that hangs leaves room for one of another namespace
MAX_SHARE = MAX_WRITES // 2  # of a namespace, by default
MIN_SHARE = 5  # of a namespace whose writes hang
LEAST_MAX_WRITES = 2 * MIN_SHARE  # what may be set
MOST_MAX_WRITES = 150  # reviews of tokens and lists need connections, too
URGENT_PART = 10  # one slot in this number is never taken by a write that is not urgent
HANG_SECONDS = 5.0  # a write that fails after so long has hung, whatever the API server then says of a webhook
NO_ANSWER = 0
OVERLOADED = 429
OVERLOADED_SECONDS = 1.0  # if the API server asks to wait and does not say for how long
MAX_OVERLOADED_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 0.2  # after writes without an answer; twice as long after each further one
MAX_PAUSE_SECONDS = 5.0


@dataclass(slots=True)
class _Namespace(Generic[Sender]):
    """A namespace that has writes.

    Attributes:
        share: how many may be on their way.
        on_their_way: how many are.
        waiting: those that have writes to send, in their order; by whether they are urgent.
    """

    share: int
    on_their_way: int = 0
    waiting: dict[bool, OrderedDict[Sender, None]] = field(default_factory=lambda: {True: OrderedDict(), False: OrderedDict()})


@dataclass(frozen=True, slots=True, eq=False)
class Turn(Generic[Sender]):
    """A slot that a sender has for one write.

    Attributes:
        sender: whose turn it is.
        namespace: of the sender.
        urgent: whether it waited as urgent.
        began: when it was given, monotonic seconds.
    """

    sender: Sender
    namespace: str
    urgent: bool
    began: float


class WriteShares(Generic[Sender]):
    """Gives senders their turns, of the urgent ones first to those of the namespace with the fewest writes on their way.

    - An API server that asks to wait (429) is left alone by all for that time, then half as many writes are sent at once as before.
      It limits a client as a whole (API priority and fairness). A 429 that a webhook has chosen is a refusal like others.
    - A write that hangs halves what its namespace may have on its way. Each other end of a write allows for one more.
    - If writes of two namespaces get no answer, and none has since they were sent, the API server itself is in trouble: all wait for
      a pause that grows, then two writes are tried at a time. Each answer allows for one more.

    Each call costs the same, however many senders and namespaces wait.

    Args:
        max_writes: how many writes may be on their way at most. A namespace may have half of that.

    Attributes:
        limit: how many writes may be on their way.
        paused_until: until when none is sent, monotonic seconds.
    """

    def __init__(self, max_writes: int = MAX_WRITES) -> None:
        self._max_writes, self._max_share = max_writes, max_writes // 2
        self.limit = max_writes
        self.paused_until = 0.0
        self._namespaces: dict[str, _Namespace[Sender]] = {}
        # The namespaces that wait and have less than their share on its way, by urgency and by how many that is.
        self._ready: dict[bool, list[OrderedDict[str, None]]] = {
            urgent: [OrderedDict() for _ in range(self._max_share)] for urgent in (True, False)
        }
        self._on_their_way = {True: 0, False: 0}  # by urgency
        self._urgent_in_a_row = 0
        self._answered_at = 0.0
        self._unanswered: set[str] = set()  # namespaces, since the last answer
        self._pauses = 0  # since the last answer

    def add(self, sender: Sender, namespace: str, *, urgent: bool) -> None:
        """Adds a sender behind the others of its namespace. One that waits keeps its place, unless its urgency has changed."""
        known = self._namespaces.setdefault(namespace, _Namespace(self._max_share))
        known.waiting[not urgent].pop(sender, None)
        known.waiting[urgent].setdefault(sender)
        self._place(namespace, known)

    def discard(self, sender: Sender, namespace: str) -> None:
        """Removes a sender, if it waits."""
        known = self._namespaces.get(namespace)
        if known is not None:
            for senders in known.waiting.values():
                senders.pop(sender, None)
            self._place(namespace, known)

    def take(self, now: float) -> Turn[Sender] | None:
        """Takes the next sender out, which has a slot until `end`; None: no sender may send now."""
        if now < self.paused_until:
            return None
        first = self._urgent_in_a_row < URGENT_IN_A_ROW  # then one that is not urgent: it may have waited for long
        for urgent in (first, not first):
            namespace = self._next(urgent)
            if namespace is None:
                continue
            known = self._namespaces[namespace]
            sender, _ = known.waiting[urgent].popitem(last=False)
            self._urgent_in_a_row = self._urgent_in_a_row + 1 if urgent else 0
            self._count(namespace, known, urgent, 1)
            return Turn(sender, namespace, urgent, now)
        return None

    def end(self, turn: Turn[Sender], now: float, error: ClusterError | None = None) -> None:
        """Gives a slot back.

        Args:
            turn: what `take` has returned.
            now: monotonic seconds.
            error: of the write; None: it has succeeded.
        """
        known = self._namespaces[turn.namespace]
        unanswered = error is not None and error.code == NO_ANSWER
        if unanswered or (error is not None and now - turn.began >= HANG_SECONDS):
            known.share = max(known.share // 2, MIN_SHARE)
        else:
            known.share = min(known.share + 1, self._max_share)
        self._count(turn.namespace, known, turn.urgent, -1)
        if unanswered:
            self._note_silence(turn, now)
            return
        self._answered_at, self._pauses = now, 0
        self._unanswered.clear()
        if error is not None and error.code == OVERLOADED and error.judgement is Judgement.TROUBLE:
            # Writes that were sent together are refused together: that counts once.
            if now >= self.paused_until:
                self.limit = max(self.limit // 2, MIN_WRITES)
            seconds = min(error.retry_after_seconds or OVERLOADED_SECONDS, MAX_OVERLOADED_SECONDS)
            self.paused_until = max(self.paused_until, now + seconds)
        else:
            self.limit = min(self.limit + 1, self._max_writes)

    def _note_silence(self, turn: Turn[Sender], now: float) -> None:
        if turn.began < self._answered_at:
            return  # the API server has answered another write meanwhile
        self._unanswered.add(turn.namespace)
        if len(self._unanswered) > 1 and now >= self.paused_until:
            self.limit = MIN_WRITES
            self.paused_until = now + min(FIRST_PAUSE_SECONDS * 2 ** min(self._pauses, 16), MAX_PAUSE_SECONDS)
            self._pauses += 1

    def _next(self, urgent: bool) -> str | None:
        """The namespace whose turn it is, among those of one urgency; None: no slot is free for them."""
        if not urgent and self._on_their_way[False] >= self.limit - self.limit // URGENT_PART:
            return None
        free = self.limit - sum(self._on_their_way.values())
        for ready in self._ready[urgent][: max(free, 0)]:
            if ready:
                return next(iter(ready))
        return None

    def _count(self, namespace: str, known: _Namespace[Sender], urgent: bool, change: int) -> None:
        """A write begins, or ends."""
        self._unplace(namespace, known)
        known.on_their_way += change
        self._on_their_way[urgent] += change
        self._place(namespace, known)

    def _unplace(self, namespace: str, known: _Namespace[Sender]) -> None:
        if known.on_their_way < self._max_share:
            for lists in self._ready.values():
                lists[known.on_their_way].pop(namespace, None)

    def _place(self, namespace: str, known: _Namespace[Sender]) -> None:
        for urgent, senders in known.waiting.items():
            if known.on_their_way < self._max_share:
                ready = self._ready[urgent][known.on_their_way]
                if senders and known.on_their_way < known.share:
                    ready.setdefault(namespace)
                else:
                    ready.pop(namespace, None)
        if not known.on_their_way and not any(known.waiting.values()):
            del self._namespaces[namespace]
