"""The pods of jobs: by name, by job, by node and by address."""

from collections.abc import Collection
from dataclasses import replace

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

ROLES = (names.ROLE_WORKER, names.ROLE_STORE)


class PodIndex(OwnedIndex[PodView]):
    def __init__(self) -> None:
        super().__init__()
        self._on_node: dict[str, set[Place]] = {}
        self._at_address: dict[str, set[Place]] = {}
        # By role, until one of the job's pods changes.
        self._sorted: dict[Owner, dict[str, tuple[PodView, ...]]] = {}

    def __setitem__(self, place: Place, entry: Entry[PodView]) -> None:
        require_texts(entry.view.node, entry.view.address)
        super().__setitem__(place, entry)
        self._sorted.pop(entry.owner, None)
        if entry.view.node:
            self._on_node.setdefault(entry.view.node, set()).add(place)
        if entry.view.address:
            self._at_address.setdefault(entry.view.address, set()).add(place)

    def __delitem__(self, place: Place) -> None:
        entry = self[place]
        super().__delitem__(place)
        self._sorted.pop(entry.owner, None)
        discard(self._on_node, entry.view.node, place)
        discard(self._at_address, entry.view.address, place)

    def workers_of(self, owner: Owner) -> tuple[PodView, ...]:
        """The worker pods of a job, by index: the same tuple until one of its pods changes."""
        return self._sort(owner, names.ROLE_WORKER)

    def stores_of(self, owner: Owner) -> tuple[PodView, ...]:
        return self._sort(owner, names.ROLE_STORE)

    def owners_on(self, node: str) -> set[Owner]:
        return {self[place].owner for place in self._on_node.get(node, ())}

    def owners_at(self, address: str) -> set[Owner]:
        """The jobs with pods of an address: several, if they use their nodes' network."""
        return {self[place].owner for place in self._at_address.get(address, ())}

    @property
    def nodes(self) -> Collection[str]:
        return self._on_node.keys()

    def mark_ended_before_takeover(self) -> None:
        for place, entry in list(self.items()):
            if entry.view.ended:
                view = replace(entry.view, ended_before_takeover=True)
                self[place] = replace(entry, view=view)

    def _sort(self, owner: Owner, role: str) -> tuple[PodView, ...]:
        if owner not in self._of_owner:
            return ()
        if owner not in self._sorted:
            views = sorted(self.of(owner), key=lambda pod: (pod.index, pod.created_at, pod.name))
            self._sorted[owner] = {
                each: tuple(view for view in views if view.role == each) for each in ROLES
            }
        return self._sorted[owner][role]
