"""The copies that ranks send each other of their shards."""

import threading
import time
from collections.abc import Container, Sequence

import torch
import torch.distributed as dist

from elastic_pytorch.group.exchange import swap
from elastic_pytorch.log import logger
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.memory.snapshot import Arriving, Snapshot
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.wakeup import Rest

TAGS = 1 << 30  # the first and the number of tags: far from a script's and torch's


def tag_of(number: int) -> int:
    """Returns the tag of a state's messages, as other states may send at the same time."""
    return TAGS + number % TAGS


class PeerCopies:
    """Copies one version after the other, in a thread. All ranks copy the same versions.

    The rank `to` gets this rank's shards, and the copies of those of `source` lie here. The version
    that `own` keeps is copied, and is not overwritten.
    """

    def __init__(
        self,
        own: Snapshot,
        copies: Snapshot,
        to: int | None,
        source: int | None,
        group: dist.ProcessGroup | None,
        tag: int,
    ) -> None:
        self._own, self._copies = own, copies
        self._to, self._source, self._group, self._tag = to, source, group, tag
        self._thread: threading.Thread | None = None
        self._problem: Exception | None = None
        self.whole = True  # all of the last version is sent and received
        self._rest = Rest()
        self._rested_at = time.monotonic()

    @property
    def rested(self) -> bool:
        return self.whole and time.monotonic() >= self._rested_at

    def begin(self, version: StateVersion, parts: Container[int] | None = None) -> None:
        self.wait()
        to = self._to if parts is None or dist.get_rank(self._group) in parts else None
        source = self._source if parts is None or self._source in parts else None
        if to is None and source is None:
            return
        self.whole = False
        self._thread = threading.Thread(
            target=self._run, args=(version, to, source), name="copies for peers", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        self.end()
        self.check()

    def end(self) -> None:
        """Waits for the end of copies whose group is gone."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Raises a RuntimeError for failed copies: no commit could follow."""
        if self._problem is not None:
            raise RuntimeError(f"copies for peers: {self._problem}") from self._problem

    def _run(self, version: StateVersion, to: int | None, source: int | None) -> None:
        since = time.monotonic()
        try:
            send_part(version, self._own, self._copies, to, source, self._group, self._tag)
        except Exception as error:  # for the next agreement, before which training may fail
            self._problem = error
            logger.debug("copies for peers: %s", error)
            return
        now = time.monotonic()
        self._rested_at = now + self._rest.after(now - since)
        self.whole = True


def send_part(
    version: StateVersion,
    own: Snapshot,
    copies: Snapshot,
    to: int | None,
    source: int | None,
    group: dist.ProcessGroup | None,
    tag: int,
) -> None:
    """Sends a version of this rank's shards to another rank, and keeps what a third one sends."""
    me = dist.get_rank(group)
    length, of_source = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    mapped: MappedState | None = None
    if to is not None:
        slot = next(slot for slot in own.slots() if slot.version == version)
        mapped = MappedState(own.fd, slot)
        length[0] = slot.length

    def send_on(sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor]) -> None:
        ends = me if to is None else to, me if source is None else source
        swap(sent, ends[0], received, ends[1], group, tag)

    send_on([length] if to is not None else (), [of_source] if source is not None else ())
    arriving: Arriving | None = (
        copies.receive(version, int(of_source)) if source is not None else None
    )
    send_on(
        [mapped.payload] if mapped is not None else (),
        [arriving.memory] if arriving is not None else (),
    )
    if arriving is not None:
        arriving.complete()
