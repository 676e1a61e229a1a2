"""Metrics over TLS of a real replica: who is refused, who is answered, and by whom."""

import asyncio
import base64
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass

import aiohttp
import pytest
from elastic_pytorch_operator import cli
from elastic_pytorch_operator.api.resources import ENDPOINT_SLICES, LEASES, SECRETS
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint
from elastic_pytorch_operator.runtime.replica import Replica
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey
from elastic_pytorch_operator.tls.certificates import make_authority, make_serving
from elastic_pytorch_operator.tls.secret import keep_trust, read_trust

from tests.operator.counted_cluster import CountedCluster
from tests.operator.faulty_cluster import add_object
from tests.ports import free_port

pytestmark = pytest.mark.process

SYSTEM, NAME, HOST = "system", "team-b", "team-b.system.svc"
SECRET, SLICE = f"{NAME}-tls", f"{NAME}-ipv4"


@dataclass
class Served:
    """A cluster with a replica, and who asks it."""

    cluster: CountedCluster
    settings: ReplicaSettings
    session: aiohttp.ClientSession

    async def metrics(self, token: str = "") -> tuple[int, str]:
        """What a client gets that trusts the Secret's authorities, once the port is open."""
        trust, _ = read_trust(await self.cluster.get(SECRETS, SYSTEM, SECRET))
        tls = ssl.create_default_context(cadata=trust.bundle)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://127.0.0.1:{self.settings.metrics_port}/metrics"
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    async with self.session.get(
                        url, headers=headers, ssl=tls, server_hostname=HOST
                    ) as answer:
                        return answer.status, await answer.text()
                await asyncio.sleep(0.05)

    async def shown(self, port: int, authorities: str) -> str:
        """The certificate, PEM, that a client sees who trusts these authorities."""
        tls = ssl.create_default_context(cadata=authorities)
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    _, writer = await asyncio.open_connection(
                        "127.0.0.1", port, ssl=tls, server_hostname=HOST
                    )
                    try:
                        return ssl.DER_cert_to_PEM_cert(
                            writer.get_extra_info("ssl_object").getpeercert(True)
                        )
                    finally:
                        writer.close()
                await asyncio.sleep(0.05)

    async def plain(self, path: str) -> int:
        async with self.session.get(f"http://127.0.0.1:{self.settings.probe_port}{path}") as answer:
            return answer.status

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.02)


async def watch(cache: Cache, request_work: Callable[[Iterable[JobKey]], None]) -> None:
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def served(*, may_lead: bool = True, existing: str = "") -> AsyncIterator[Served]:
    cluster = CountedCluster()
    for kind, name in (("Lease", NAME), ("Secret", existing or SECRET), ("EndpointSlice", SLICE)):
        add_object(cluster, kind, SYSTEM, name)
    if not may_lead:
        lease = await cluster.get(LEASES, SYSTEM, NAME)
        spec = {
            "holderIdentity": "another",
            "leaseDurationSeconds": 300,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }
        await cluster.replace(LEASES, {**lease, "spec": spec})
    cluster.users |= {
        "prometheus": "system:serviceaccount:monitoring:prometheus",
        "worker": "system:serviceaccount:a:default",
    }
    cluster.readers.add((cluster.users["prometheus"], "/metrics"))
    ports = free_port(), free_port()
    endpoint = Endpoint("pod", "uid", "10.0.0.1", 8443, service=NAME)
    settings = ReplicaSettings(
        f"https://{HOST}:8443",
        "127.0.0.1",
        *ports,
        SYSTEM,
        "pod",
        endpoint,
        name=NAME,
        metrics_port=free_port(),
        existing_secret=existing,
    )
    replica, stop = Replica(cluster, settings, watch), asyncio.Event()
    running = asyncio.create_task(replica.run(stop))
    try:
        async with aiohttp.ClientSession() as session:
            yield Served(cluster, settings, session)
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)


async def test_scrape_without_a_token_or_without_the_right_is_refused() -> None:
    async with served() as world:
        await world.until(lambda: "replace Secret" in world.cluster.calls)
        assert (await world.metrics())[0] == 401
        assert (await world.metrics("invented"))[0] == 401
        assert (await world.metrics("worker"))[0] == 403
        code, text = await world.metrics("prometheus")
        assert code == 200
        assert "workqueue_depth" in text
        assert await world.plain("/metrics") == 404, "it is nowhere else"
        assert await world.plain("/healthz") == 200
        trust, _ = read_trust(await world.cluster.get(SECRETS, SYSTEM, SECRET))
        other = ssl.create_default_context(cadata=trust.bundle)
        url = f"https://127.0.0.1:{world.settings.metrics_port}/metrics"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await world.session.get(url, ssl=other, server_hostname="elsewhere.system.svc")


async def test_replica_on_standby_serves_its_metrics_with_the_certificate_of_the_leader() -> None:
    async with served(may_lead=False) as world:
        await world.until(lambda: world.cluster.calls.count("get Secret") > 0)
        assert "replace Secret" not in world.cluster.calls
        await keep_trust(world.cluster, SYSTEM, [HOST], time.time(), name=SECRET)
        code, text = await world.metrics("prometheus")
        assert code == 200
        assert 'leader_election_master_status{name="elastic-pytorch-operator"} 0.0' in text


@pytest.mark.parametrize("may_lead", [True, False])
async def test_certificate_that_others_keep_is_shown_by_every_replica_as_soon_as_it_is_there(
    may_lead: bool,
) -> None:
    authority, now = make_authority(time.time()), time.time()
    serving = make_serving(authority, [HOST], now)
    async with served(may_lead=may_lead, existing="corp-tls") as world:
        await world.until(lambda: world.cluster.calls.count("get Secret") > 0)
        secret = await world.cluster.get(SECRETS, SYSTEM, "corp-tls")
        texts = {
            "tls.crt": serving.certificate,
            "tls.key": serving.key,
            "ca.crt": authority.certificate,
        }
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        await world.cluster.replace(SECRETS, {**secret, "data": data})
        written = world.cluster.calls.count("replace Secret")
        ports = [world.settings.metrics_port, *([world.settings.port] if may_lead else [])]
        assert [await world.shown(port, authority.certificate) for port in ports] == [
            serving.certificate
        ] * len(ports)
        assert world.cluster.calls.count("replace Secret") == written, (
            "the operator writes nothing into it"
        )


async def test_operator_with_a_name_of_its_own_writes_its_own_objects() -> None:
    async with served() as world:
        await world.until(lambda: "replace EndpointSlice" in world.cluster.calls)
        found = await world.cluster.get(ENDPOINT_SLICES, SYSTEM, SLICE)
        assert found["metadata"]["labels"]["kubernetes.io/service-name"] == NAME
        assert (await world.cluster.get(LEASES, SYSTEM, NAME))["spec"]["holderIdentity"] == "pod"


@pytest.fixture
def root_logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes what the command sets: its stream is closed when later tests log."""
    level = logging.root.level
    monkeypatch.setattr(logging.root, "handlers", [])
    yield
    logging.root.setLevel(level)


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--metrics-port=8444"], {"POD_NAMESPACE": "a"}, "--metrics-port needs an https --url"),
        (["--metrics-port=8444", "--url=https://a:8443"], {}, "and POD_NAMESPACE"),
        (["--max-writes=9"], {}, "--max-writes must be from 10 to 150"),
        (["--max-writes=151"], {}, "--max-writes must be from 10 to 150"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    arguments: list[str],
    environment: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.main(["run", *arguments])
    assert words in capsys.readouterr().err
