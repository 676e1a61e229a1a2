"""A real training without a cluster, as hack/record_run.py has recorded it: it can be looked at again, moment by moment."""

import copy
import functools
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elastic_pytorch_client.page.server import PageServer
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_local.cluster.object_store import apply_merge_patch

from tests.plugin.page.watched_cluster import WatchedCluster
from tests.plugin.recorded_cluster import Object

FILE = Path(__file__).parent / "recorded_run.json"
WAIT_SECONDS = 60


@functools.cache
def _read() -> str:
    return FILE.read_text()


def read_run() -> Object:
    """What was recorded: `frames`, `pods`, `events`, `nodes`, `logs`."""
    found: Object = json.loads(_read())
    return found


def states() -> list[tuple[datetime, Object]]:
    """The job at each moment, oldest first."""
    job: Object = {}
    found = []
    for frame in read_run()["frames"]:
        job = apply_merge_patch(job, frame["patch"])
        found.append((datetime.fromtimestamp(frame["at"], UTC), copy.deepcopy(job)))
    return found


class RecordedRun(WatchedCluster):
    """The cluster of the recorded training, at its first moment until `play`."""

    namespace = "default"

    def __init__(self) -> None:
        super().__init__()
        run = read_run()
        self._pods, self._nodes, self._events, self.logs = run["pods"], run["nodes"], _v1(run["events"]), run["logs"]
        self.put(states()[0][1])

    def play(self, server: PageServer, moment: list[datetime]) -> None:
        """Has the job go through all its states, and a page's server see each.

        Args:
            server: of the page.
            moment: the time of day, which the server reads; set to that of each state.
        """
        for at, job in states():
            moment[0] = at
            self.change(job)
            until = time.monotonic() + WAIT_SECONDS
            while [seen.job for seen in server.live.seen()] != [
                view_job(self.get_job(self.namespace, job["metadata"]["name"]))
            ]:
                assert time.monotonic() < until
                time.sleep(0.02)


def _v1(events: list[Any]) -> list[Any]:
    """Events as the API's v1 has them: those of events.k8s.io/v1, by their other names."""
    return [event | {"involvedObject": event["regarding"], "message": event["note"]} for event in events]
