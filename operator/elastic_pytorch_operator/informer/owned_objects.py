"""What is known of one object that a job owns: a pod, or a Workload of Kueue."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.spec.job import JobKey

Owner = tuple[JobKey, str]  # a job, and its UID
Place = tuple[str, str]  # a namespace, and the name of an object there
View = TypeVar("View", PodView, WorkloadView)


@dataclass(slots=True)
class Entry(Generic[View]):
    """An object that is known.

    Attributes:
        view: what plans read of it.
        owner: the job that it names as its owner. It may lie: that job may be another namespace's.
        version: the resource version.
        seen_at: when it was last reported, monotonic seconds.
    """

    view: View
    owner: Owner
    version: int
    seen_at: float

    @property
    def uid(self) -> str:
        """The object's."""
        return self.view.uid


def require_texts(*names: object) -> None:
    """Checks what an object is found by, before any index knows it.

    Raises:
        TypeError: one is no text, so that no index could forget it.
    """
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a name or an address must be a text, not {name!r}")
