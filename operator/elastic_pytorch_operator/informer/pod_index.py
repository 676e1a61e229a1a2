"""The pods of jobs: by name, by job, by node and by address."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.informer.owned_objects import (
    Entry,
    OwnedIndex,
    Owner,
    Place,
    discard,
    require_texts,
)
from elastic_pytorch_operator.model.observed import PodView


@dataclass(frozen=True, slots=True)
class _Sorted:
    workers: tuple[PodView, ...] = ()
    stores: tuple[PodView, ...] = ()


NONE = _Sorted()


@dataclass
class PodIndex(OwnedIndex[PodView]):
    _on_node: dict[str, set[Place]] = field(default_factory=dict)
    _at_address: dict[str, set[Place]] = field(default_factory=dict)
    # Until one of the job's pods changes.
    _sorted: dict[Owner, _Sorted] = field(default_factory=dict)

    def put(self, place: Place, entry: Entry[PodView]) -> None:
        require_texts(entry.view.node, entry.view.address)
        super().put(place, entry)
        self._sorted.pop(entry.owner, None)
        if entry.view.node:
            self._on_node.setdefault(entry.view.node, set()).add(place)
        if entry.view.address:
            self._at_address.setdefault(entry.view.address, set()).add(place)

    def drop(self, place: Place) -> Entry[PodView] | None:
        entry = super().drop(place)
        if entry is not None:
            self._sorted.pop(entry.owner, None)
            discard(self._on_node, entry.view.node, place)
            discard(self._at_address, entry.view.address, place)
        return entry

    def workers_of(self, owner: Owner) -> tuple[PodView, ...]:
        """The worker pods of a job, by index: the same tuple until one of its pods changes."""
        return self._sort(owner).workers

    def stores_of(self, owner: Owner) -> tuple[PodView, ...]:
        return self._sort(owner).stores

    def owners_on(self, node: str) -> set[Owner]:
        return {self._entries[place].owner for place in self._on_node.get(node, ())}

    def owners_at(self, address: str) -> set[Owner]:
        """The jobs with pods of an address: several, if they use their nodes' network."""
        return {self._entries[place].owner for place in self._at_address.get(address, ())}

    @property
    def nodes(self) -> Collection[str]:
        return self._on_node.keys()

    def mark_ended_before_takeover(self) -> None:
        for place, entry in self:
            if entry.view.ended:
                self.put(
                    place, replace(entry, view=replace(entry.view, ended_before_takeover=True))
                )

    def _sort(self, owner: Owner) -> _Sorted:
        known = self._sorted.get(owner)
        if known is None:
            views = sorted(self.of(owner), key=lambda pod: (pod.index, pod.created_at, pod.name))
            if not views:
                return NONE
            known = self._sorted[owner] = _Sorted(
                tuple(view for view in views if view.role == names.ROLE_WORKER),
                tuple(view for view in views if view.role == names.ROLE_STORE),
            )
        return known
