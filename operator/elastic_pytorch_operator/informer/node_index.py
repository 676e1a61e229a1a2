"""The nodes, those that have been removed included."""

from collections.abc import Collection
from dataclasses import dataclass, field

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.informer.changes import Identity, version_of
from elastic_pytorch_operator.informer.pod_views import view_node
from elastic_pytorch_operator.model.announced_ends import MARKS, Mark
from elastic_pytorch_operator.model.observed import Nodes, NodeView


@dataclass(frozen=True, slots=True)
class _Entry:
    view: NodeView
    uid: str
    version: int
    seen_at: float
    known_since: float  # when this node was first reported, or removed


@dataclass(slots=True)
class NodeIndex:
    marks: tuple[Mark, ...] = MARKS
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _now: Nodes | None = None  # a copy; None: a node has changed since

    @property
    def all(self) -> Nodes:
        if self._now is None:
            self._now = Nodes({name: entry.view for name, entry in self._entries.items()})
        return self._now

    def take(self, manifest: Manifest, now: float, *, listed: bool = False) -> bool:
        """As with other objects, a list is right about all that was known before it began."""
        metadata, view = manifest["metadata"], view_node(manifest, self.marks)
        uid, version = metadata.get("uid", ""), version_of(metadata)
        known = self._entries.get(view.name)
        same = known is not None and known.uid == uid
        if (
            known is not None
            and not (listed and known.seen_at < now)
            and (version < known.version or (same and known.view.removed))
        ):
            return False
        since = known.known_since if known is not None and same else now
        self._entries[view.name] = _Entry(view, uid, version, now, since)
        return self._differs(known, view)

    def remove(self, found: Identity, now: float) -> bool:
        known = self._entries.get(found.name)
        if known is not None and (known.view.removed or known.uid != found.uid):
            return False
        view = NodeView(found.name, ready=False, removed=True)
        version = max(found.version, known.version if known else 0)
        self._entries[found.name] = _Entry(view, found.uid, version, now, now)
        return self._differs(known, view)

    def remove_others(self, listed: Collection[str], before: float) -> list[str]:
        """The nodes that a list lacks and that were reported before it."""
        gone = [
            (name, entry)
            for name, entry in self._entries.items()
            if name not in listed and entry.known_since < before
        ]
        return [name for name, entry in gone if self.remove(Identity("", name, entry.uid), before)]

    def forget_removed(self, used: Collection[str]) -> None:
        for name in [
            name for name, entry in self._entries.items() if entry.view.removed and name not in used
        ]:
            del self._entries[name]
            self._now = None

    def _differs(self, known: _Entry | None, view: NodeView) -> bool:
        if known is not None and known.view == view:
            return False
        self._now = None
        return True
