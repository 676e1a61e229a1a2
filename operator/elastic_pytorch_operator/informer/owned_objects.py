"""The objects that jobs own, pods and Workloads of Kueue: by name, and by job."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.spec.job import JobKey

Owner = tuple[JobKey, str]  # a job, and its UID
Place = tuple[str, str]  # a namespace, and the name of an object there
View = TypeVar("View", bound=PodView | WorkloadView)
Key = TypeVar("Key")


@dataclass(slots=True)
class Entry(Generic[View]):
    view: View
    # The job that it names as its owner, which may be another namespace's: it may lie.
    owner: Owner
    version: int
    seen_at: float

    @property
    def key(self) -> JobKey:
        return self.owner[0]

    @property
    def uid(self) -> str:
        return self.view.uid


def owner_of(metadata: Manifest) -> Owner | None:
    for owner in metadata.get("ownerReferences") or ():
        ours = owner.get("kind") == names.KIND and str(owner.get("apiVersion", "")).startswith(
            names.GROUP
        )
        if ours and owner.get("controller"):
            return JobKey(metadata["namespace"], owner["name"]), owner["uid"]
    return None


class OwnedIndex(dict[Place, Entry[View]]):
    """Only setting and deleting by a place keep the other indexes right."""

    def __init__(self) -> None:
        super().__init__()
        self._of_owner: dict[Owner, set[Place]] = {}

    def __setitem__(self, place: Place, entry: Entry[View]) -> None:
        """Raises TypeError for a key that is no text."""
        require_texts(*place, *entry.key, entry.owner[1], entry.uid)
        if place in self:
            del self[place]
        super().__setitem__(place, entry)
        self._of_owner.setdefault(entry.owner, set()).add(place)

    def __delitem__(self, place: Place) -> None:
        discard(self._of_owner, self[place].owner, place)
        super().__delitem__(place)

    def of(self, owner: Owner) -> list[View]:
        return [self[place].view for place in self._of_owner.get(owner, ())]


def discard(index: dict[Key, set[Place]], key: Key, place: Place) -> None:
    """Removes a place from an index of sets, in which no set is empty."""
    places = index.get(key)
    if places is not None:
        places.discard(place)
        if not places:
            del index[key]


def require_texts(*texts: object) -> None:
    """Raises TypeError for a key that is no text: no index could forget it."""
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a name or an address must be a text, not {text!r}")
