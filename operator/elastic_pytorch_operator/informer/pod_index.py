"""The pods of jobs: by name, by job, by node and by address. No question about some of them looks at all."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.informer.owned_objects import Entry, Owner, Place, require_texts
from elastic_pytorch_operator.model.observed import PodView

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class _Sorted:
    """A job's pods by role, each by index."""

    workers: tuple[PodView, ...] = ()
    stores: tuple[PodView, ...] = ()


NONE = _Sorted()


@dataclass(slots=True)
class PodIndex:
    """The pods of all jobs. What is answered for one job or node costs nothing for the others'."""

    _entries: dict[Place, Entry[PodView]] = field(default_factory=dict)
    _of_owner: dict[Owner, set[Place]] = field(default_factory=dict)
    _on_node: dict[str, set[Place]] = field(default_factory=dict)
    _at_address: dict[str, set[Place]] = field(default_factory=dict)
    _sorted: dict[Owner, _Sorted] = field(default_factory=dict)  # until one of the job's pods changes

    def __iter__(self) -> Iterator[tuple[Place, Entry[PodView]]]:
        """All pods, as they are now: they may be changed meanwhile."""
        return iter(list(self._entries.items()))

    def get(self, place: Place) -> Entry[PodView] | None:
        """A pod; None if it is not known."""
        return self._entries.get(place)

    def put(self, place: Place, entry: Entry[PodView]) -> None:
        """Takes in a pod. It replaces the one of its name.

        Raises:
            TypeError: it cannot be found by what it calls itself, its job, its node or its address.
        """
        require_texts(*place, *entry.owner[0], entry.owner[1], entry.uid, entry.view.node, entry.view.address)
        self.drop(place)
        self._entries[place] = entry
        self._of_owner.setdefault(entry.owner, set()).add(place)
        self._sorted.pop(entry.owner, None)
        if entry.view.node:
            self._on_node.setdefault(entry.view.node, set()).add(place)
        if entry.view.address:
            self._at_address.setdefault(entry.view.address, set()).add(place)

    def drop(self, place: Place) -> None:
        """Forgets a pod, if it is known."""
        entry = self._entries.pop(place, None)
        if entry is not None:
            self._sorted.pop(entry.owner, None)
            _discard(self._of_owner, entry.owner, place)
            _discard(self._on_node, entry.view.node, place)
            _discard(self._at_address, entry.view.address, place)

    def workers_of(self, owner: Owner) -> tuple[PodView, ...]:
        """The worker pods of a job, by index. It is the same tuple until one of the job's pods changes."""
        return self._sort(owner).workers

    def stores_of(self, owner: Owner) -> tuple[PodView, ...]:
        """The pods that serve the stores of a job's stock rendezvous."""
        return self._sort(owner).stores

    def owners_on(self, node: str) -> set[Owner]:
        """The jobs with pods on a node."""
        return {self._entries[place].owner for place in self._on_node.get(node, ())}

    def owners_at(self, address: str) -> set[Owner]:
        """The jobs with pods of an address: several, if they use their nodes' network."""
        return {self._entries[place].owner for place in self._at_address.get(address, ())}

    @property
    def nodes(self) -> Collection[str]:
        """The nodes that pods are on."""
        return self._on_node.keys()

    def mark_ended_before_takeover(self) -> None:
        """Marks the pods that have ended."""
        for place, entry in self:
            if entry.view.ended:
                self.put(place, replace(entry, view=replace(entry.view, ended_before_takeover=True)))

    def _sort(self, owner: Owner) -> _Sorted:
        known = self._sorted.get(owner)
        if known is None:
            places = self._of_owner.get(owner)
            if not places:
                return NONE
            views = sorted(
                (self._entries[place].view for place in places), key=lambda pod: (pod.index, pod.created_at, pod.name)
            )
            known = self._sorted[owner] = _Sorted(
                tuple(view for view in views if view.role == names.ROLE_WORKER),
                tuple(view for view in views if view.role == names.ROLE_STORE),
            )
        return known


def _discard(index: dict[Key, set[Place]], key: Key, place: Place) -> None:
    """Removes a place from an index of sets, in which no set is empty."""
    places = index.get(key)
    if places is not None:
        places.discard(place)
        if not places:
            del index[key]
