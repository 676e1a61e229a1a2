"""The nodes of the cluster, asked for once a minute: a large cluster's list is long, and an open page asks again and again."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from elastic_pytorch_client.cluster import ClusterReader
from elastic_pytorch_client.evidence import read_nodes
from elastic_pytorch_client.reading.nodes import NodeView

KEPT = timedelta(minutes=1)


@dataclass
class KeptNodes:
    cluster: ClusterReader
    now: Callable[[], datetime]
    _read: datetime | None = None
    _nodes: list[NodeView] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def nodes(self) -> list[NodeView] | None:
        """All of them; None if the user may not look at them."""
        with self._lock:
            now = self.now()
            if self._read is None or not timedelta() <= now - self._read < KEPT:
                self._read, self._nodes = now, read_nodes(self.cluster)
            return self._nodes
