import threading
from collections.abc import Iterator

import pytest
from elastic_pytorch_client.errors import Unreachable
from elastic_pytorch_client.page import live_jobs
from elastic_pytorch_client.page.live_jobs import LiveJobs

from tests.plugin.recorded_cluster import Object, RecordedCluster


class Restarted(RecordedCluster):
    """Has no jobs, breaks off the first watch, and keeps the second one open."""

    def __init__(self) -> None:
        super().__init__()
        self.live = LiveJobs(self, self.namespace)
        self.troubles: list[str] = []  # at the begin of each watch
        self.answers, self.ends = threading.Event(), threading.Event()

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = 60
    ) -> Iterator[tuple[str, Object]]:
        self.troubles.append(self.live.trouble)
        if len(self.troubles) == 1:
            raise Unreachable("no answer")
        self.answers.set()
        self.ends.wait(60)
        yield from ()


def test_trouble_ends_with_the_next_answer_where_no_job_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_jobs, "RETRY_SECONDS", 0)
    cluster = Restarted()
    cluster.live.start()
    assert cluster.answers.wait(60)
    cluster.live.stop()
    cluster.ends.set()
    assert cluster.troubles == ["", ""]
