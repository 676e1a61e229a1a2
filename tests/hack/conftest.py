from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from measure.api import Api

from tests.hack.stand_in_api import Server


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def api(server: Server, tmp_path: Path) -> AsyncIterator[Api]:
    runner = web.ServerRunner(web.Server(server.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = {
        "current-context": "kind",
        "clusters": [
            {"name": "kind", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}
        ],
        "users": [{"name": "kind", "user": {}}],
        "contexts": [
            {"name": "kind", "context": {"cluster": "kind", "user": "kind", "namespace": "ns"}}
        ],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    async with Api.connect(tmp_path / "kubeconfig") as api:
        yield api
    await runner.cleanup()
