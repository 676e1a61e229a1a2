import json
from pathlib import Path

import pytest
from measure.api import Api
from measure.commands import Commands
from measure.kind_cluster import OPERATOR_NAMESPACE
from measure.watcher import LEASE, LEASES
from scale.meter import Meter
from scale.stage import Stage

from tests.hack.stand_in_api import Server

OPERATORS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"


def tell(server: Server, *, cpu: float, mib: int, posts: int) -> None:
    """What the API server and two operators count: the standby nothing."""
    server.lines[OPERATORS] = [json.dumps({"items": [{"metadata": {"name": name}} for name in "ab"]})]
    server.lines[f"{LEASES}/{LEASE}"] = [json.dumps({"spec": {"holderIdentity": "a"}})]
    server.lines["/metrics"] = [f'apiserver_request_total{{verb="POST"}} {posts * 3}', "go_goroutines 7"]
    for pod, share in (("a", 1), ("b", 0)):
        server.lines[f"{OPERATORS}/{pod}:8781/proxy/metrics"] = [
            f"process_cpu_seconds_total {cpu * share}",
            f"process_resident_memory_bytes {mib * share * 2**20}",
            f'rest_client_requests_total{{code="201",method="POST"}} {posts * share}',
        ]


@pytest.fixture
def meter(api: Api) -> Meter:
    return Meter(Stage(api, Commands(Path("kubectl"), Path("kubeconfig")), jobs=1, workers=1))


async def test_phase_is_what_has_grown_meanwhile(server: Server, meter: Meter) -> None:
    tell(server, cpu=10.0, mib=300, posts=100)
    async with meter.phase("quiet"):
        tell(server, cpu=14.0, mib=200, posts=700)
    phase = meter.phases["quiet"]
    assert (phase.leader_mib, phase.standby_mib, phase.standby_cores) == (300, 0, 0.0)
    assert phase.leader_cores
    assert phase.api_requests["POST"] == pytest.approx(3 * phase.operator_requests["POST"], rel=0.01)


async def test_phase_that_breaks_off_is_kept(server: Server, meter: Meter) -> None:
    tell(server, cpu=1.0, mib=90, posts=0)
    with pytest.raises(TimeoutError):
        async with meter.phase("create"):
            raise TimeoutError
    assert meter.phases["create"].leader_mib == 90


async def test_leader_that_has_gone_has_no_share(server: Server, meter: Meter) -> None:
    tell(server, cpu=1.0, mib=90, posts=0)
    async with meter.phase("takeover"):
        del server.lines[f"{OPERATORS}/a:8781/proxy/metrics"]
    phase = meter.phases["takeover"]
    assert (phase.leader_cores, phase.standby_cores, phase.leader_mib) == (None, 0.0, 90)
