import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from elastic_pytorch_client.cluster import Access, KubernetesCluster
from elastic_pytorch_client.errors import Refused, Unreachable

from tests.plugin.api_server import kubeconfig

PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, ERROR = b"\x01", b"\x02", b"\x03"
SUCCESS = {"status": "Success"}
FAILURE = {
    "status": "Failure",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}


class Pods:
    """Answers each command with the same frames.

    Attributes:
        frames: what is sent, each with its channel in front.
        asked: the query of each request.
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.asked: list[dict[str, list[str]]] = []

    async def answer(self, request: web.Request) -> web.WebSocketResponse:
        self.asked.append({name: request.query.getall(name) for name in request.query})
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        for frame in self.frames:
            await socket.send_bytes(frame)
        await socket.close()
        return socket


@pytest.fixture
async def pods(tmp_path: Path) -> AsyncIterator[tuple[Pods, KubernetesCluster]]:
    answering, app = Pods(), web.Application()
    app.router.add_get("/api/v1/namespaces/team/pods/w/exec", answering.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig(runner.addresses[0][1])))
    yield answering, KubernetesCluster.connect(Access(str(tmp_path / "config")))
    await runner.cleanup()


async def test_command(pods: tuple[Pods, KubernetesCluster]) -> None:
    answering, cluster = pods
    answering.frames = [
        STDOUT + b"5",
        STDERR + b"a warning",
        STDOUT + b"7\n",
        ERROR + json.dumps(SUCCESS).encode(),
    ]
    found = await asyncio.to_thread(
        cluster.run_in_pod, "team", "w", "pytorch", ["python3", "-c", "print(57)"]
    )
    assert found == "57\n"
    assert answering.asked == [
        {
            "command": ["python3", "-c", "print(57)"],
            "container": ["pytorch"],
            "stdout": ["true"],
            "stderr": ["true"],
        }
    ]


async def test_command_that_fails(pods: tuple[Pods, KubernetesCluster]) -> None:
    answering, cluster = pods
    answering.frames = [
        STDERR + b"no training process was found\n",
        ERROR + json.dumps(FAILURE).encode(),
    ]
    with pytest.raises(Refused, match="exit code 3: no training process was found"):
        await asyncio.to_thread(cluster.run_in_pod, "team", "w", "pytorch", ["false"])


async def test_connection_that_breaks(pods: tuple[Pods, KubernetesCluster]) -> None:
    _, cluster = pods
    with pytest.raises(Unreachable, match="cannot run a command in pod w"):
        await asyncio.to_thread(cluster.run_in_pod, "team", "w", "pytorch", ["true"])
