"""What `helm test` runs, against the real agents' API."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.api.resources import NODES, PODS
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.tls.rotation import Trust
from elastic_pytorch_operator.tls.secret import load_certificate, renew, server_context

from tests.operator.builders import a_job, a_worker_pod
from tests.paths import ROOT

SCRIPT = ROOT / "charts" / "elastic-pytorch-operator" / "files" / "installation_test.py"


async def run_script(url: str, token: Path, authorities: Path) -> tuple[int | None, str]:
    script = SCRIPT.read_text().replace("GIVE_UP_SECONDS = 60.0", "GIVE_UP_SECONDS = 1.0")
    command = [sys.executable, "-c", script, url, str(token), str(authorities)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await process.communicate()
    return process.returncode, told.decode()


@pytest.mark.process
async def test_a_pod_that_is_no_worker_is_told_so(tmp_path: Path) -> None:
    cluster, cache = FakeCluster(), Cache()
    await cluster.create(PODS, a_worker_pod(a_job(), 0))
    token = tmp_path / "token"
    token.write_text(cluster.issue_token("default", "lm-worker-0-x7k2p"))
    # The operator knows of no such worker.
    cache.replace_all([], [], await cluster.list_all(NODES), 0.0)
    api = AgentApi(cache, AgentRegistry(), TokenReviewer(cluster), lambda *_: None)
    trust, tls = renew(Trust(), ["localhost"], time.time()), server_context()
    load_certificate(trust.shown, tls)
    authorities = tmp_path / "ca.crt"
    authorities.write_text(trust.bundle)
    async with listening(api, "127.0.0.1", 0, tls) as port:
        code, told = await run_script(f"https://localhost:{port}", token, authorities)
    assert (code, told.count("ok: ")) == (0, 3), told


@pytest.mark.process
async def test_an_operator_that_cannot_be_reached_fails_the_test(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    authorities = tmp_path / "ca.crt"
    authorities.write_text(renew(Trust(), ["localhost"], time.time()).bundle)
    code, told = await run_script("https://127.0.0.1:9", token, authorities)
    assert code == 1
    assert "FAILED: no agent is heard without a token: no answer" in told
