"""The workers in a job's status: by it, a new leader knows of agents that have not reported yet."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.numbers import parse_ranges
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.operator_state import read_operator_state

# Of workers whose agents have reported.
HEARD_STATES = ("Running", "Ready", "Spare", "Preparing", "Saving", "Succeeded", "Silent")


@dataclass(frozen=True, slots=True)
class KnownWorker:
    pod: str  # empty: only the index is known, and that pod is gone
    index: int
    state: str
    ranked: bool

    @property
    def name(self) -> str:
        return self.pod or f"worker {self.index}"

    @property
    def heard(self) -> bool:
        return self.state in HEARD_STATES


def known_workers(status: Mapping[str, Any], pods: Iterable[PodView]) -> tuple[KnownWorker, ...]:
    """A worker that is not listed is the newest pod of its index when the status was written.

    A pod newer than the last one whose agent had reported may be a replacement without a report.
    """
    listed = [
        KnownWorker(
            str(worker.get("name", "")),
            int(worker.get("index", 0)),
            str(worker.get("state", "")),
            "rank" in worker,
        )
        for worker in status.get("workers") or ()
    ]
    if not (states := _unlisted(status)):
        return tuple(listed)
    named, newest = {worker.pod for worker in listed}, read_operator_state(status).newest_pod_time
    meant = newest_by_index(
        pod for pod in pods if pod.name not in named and pod.creation_time <= newest
    )
    unlisted = [
        KnownWorker(
            meant[index].name if index in meant else "",
            index,
            state,
            ranked=state in (names.RUNNING, names.SAVING),
        )
        for state, indexes in states.items()
        for index in indexes
    ]
    return (*listed, *unlisted)


def count_states(status: Mapping[str, Any]) -> Counter[str]:
    states = Counter(str(worker.get("state", "Starting")) for worker in status.get("workers") or ())
    states.update({state: len(indexes) for state, indexes in _unlisted(status).items()})
    return states


def _unlisted(status: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {
        state: parse_ranges(str(text))
        for state, text in (status.get("unlistedWorkers") or {}).items()
    }


def newest_by_index(pods: Iterable[PodView]) -> dict[int, PodView]:
    """The last created pod of each index; of two at once, the ended one is older."""
    found: dict[int, PodView] = {}
    for pod in sorted(pods, key=lambda pod: (pod.creation_time, not pod.ended), reverse=True):
        found.setdefault(pod.index, pod)
    return found
