"""A real training without a cluster, as hack/record_run.py has recorded it."""

import functools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.plugin.page.watched_cluster import WatchedCluster
from tests.plugin.recorded_cluster import Object

FILE = Path(__file__).parent / "recorded_run.json"


@functools.cache
def _read() -> str:
    return FILE.read_text()


def read_run() -> Object:
    """What was recorded: `at`, `job`, `pods`, `events`, `nodes`, `logs`."""
    found: Object = json.loads(_read())
    return found


def recorded_at() -> datetime:
    """When it was recorded."""
    return datetime.fromtimestamp(read_run()["at"], UTC)


class RecordedRun(WatchedCluster):
    """The cluster of the recorded training."""

    namespace = "default"

    def __init__(self) -> None:
        super().__init__()
        run = read_run()
        self._pods = run["pods"]
        self._nodes = run["nodes"]
        self._events = _v1(run["events"])
        self.logs = run["logs"]
        self.put(run["job"])


def _v1(events: list[Any]) -> list[Any]:
    """Events as the API's v1 has them: those of events.k8s.io/v1, by their other names."""
    return [
        event | {"involvedObject": event["regarding"], "message": event["note"]} for event in events
    ]
