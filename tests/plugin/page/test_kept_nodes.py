"""The nodes that the page's server keeps."""

from datetime import UTC, datetime, timedelta

from elastic_pytorch_client.errors import NotAllowed
from elastic_pytorch_client.page.server import KeptNodes

from tests.plugin.recorded_cluster import Object, RecordedCluster

START = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


class CountingCluster(RecordedCluster):
    """A recorded cluster that counts how often it is asked for its nodes."""

    asked = 0

    def list_nodes(self) -> list[Object]:
        self.asked += 1
        return super().list_nodes()


def test_nodes_are_asked_for_once_a_minute_also_where_they_are_forbidden() -> None:
    cluster, now = CountingCluster("young"), [START]
    cluster.faults = {"list_nodes": [NotAllowed("no")]}
    kept = KeptNodes(cluster, lambda: now[0])
    found = []
    for seconds in (0, 59, 60, 61, 119, 120, 30):  # at the end, somebody has set the clock back
        now[0] = START + timedelta(seconds=seconds)
        found.append(kept.nodes())
    assert cluster.asked == 4
    assert [nodes is None for nodes in found] == [True, True, False, False, False, False, False]
