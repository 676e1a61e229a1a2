"""What `helm test` runs, against the real agents' API."""

import asyncio
import sys
from pathlib import Path

from elastic_pytorch_operator.agent_api import AgentApi, listening
from elastic_pytorch_operator.fake_cluster import FakeCluster
from elastic_pytorch_operator.identity import TokenReviewer
from elastic_pytorch_operator.manifests import worker_pod
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.store import Store
from operator_builders import a_job

SCRIPT = Path(__file__).parents[2] / "charts" / "elastic-pytorch-operator" / "files" / "installation_test.py"


async def run_script(url: str, token: Path) -> tuple[int | None, str]:
    script = SCRIPT.read_text().replace("PATIENCE_SECONDS = 60.0", "PATIENCE_SECONDS = 1.0")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, url, str(token), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await process.communicate()
    return process.returncode, told.decode()


async def test_a_pod_that_is_no_worker_is_told_so(tmp_path: Path) -> None:
    cluster, store = FakeCluster(), Store()
    await cluster.create_pod(worker_pod(a_job(), 0, "x7k2p", ""))
    token = tmp_path / "token"
    token.write_text(cluster.issue_token("default", "lm-worker-0-x7k2p"))
    store.replace_all([], [], await cluster.list_nodes(), 0.0)  # the operator knows of no such worker
    api = AgentApi(store, Roster(), TokenReviewer(cluster), lambda *_: None)
    async with listening(api, "127.0.0.1", 0) as port:
        code, told = await run_script(f"http://127.0.0.1:{port}", token)
    assert (code, told.count("ok: ")) == (0, 3), told


async def test_an_operator_that_cannot_be_reached_fails_the_test(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    code, told = await run_script("http://127.0.0.1:9", token)
    assert code == 1
    assert "FAILED: nobody is heard without a token: no answer" in told
