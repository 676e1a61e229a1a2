"""Stock torchrun over an etcd of the user's: Debian's, as `make etcd` unpacks it."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.local_jobs import LocalJob, local_job
from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.process

UNPACKED = ROOT / ".cluster" / "etcd"
PACKAGES = UNPACKED / "usr" / "lib" / "python3" / "dist-packages"
BINARY = shutil.which("etcd") or shutil.which("etcd", path=UNPACKED / "usr" / "bin")
ENDLESS = ("--steps", "100000")


def client_is_there(folder: Path) -> bool:
    return importlib.util.find_spec("etcd") is not None or (folder / "etcd").is_dir()


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where an etcd with the v2 API listens; workers find its Python client."""
    if BINARY is None:
        pytest.skip("needs etcd: `make etcd` unpacks Debian's, or install etcd-server")
    if not client_is_there(PACKAGES):
        pytest.skip("needs the Python package python-etcd: `make etcd` unpacks Debian's")
    client, peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
    urls = {
        "listen-client": client,
        "advertise-client": client,
        "listen-peer": peer,
        "initial-advertise-peer": peer,
    }
    flags = [f"--{name}-urls=http://{place}" for name, place in urls.items()]
    flags += [
        "--enable-v2",
        f"--data-dir={tmp_path / 'etcd'}",
        f"--initial-cluster=default=http://{peer}",
    ]
    with (tmp_path / "etcd.log").open("wb") as log:
        etcd = subprocess.Popen([BINARY, *flags], stdout=log, stderr=log)

    def answers() -> bool:
        assert etcd.poll() is None, (tmp_path / "etcd.log").read_text()
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{client}/v2/keys", timeout=1),
        ):
            return True
        return False

    until(answers, "etcd to answer")
    path = os.pathsep.join(
        filter(None, [os.environ.get("PYTHONPATH"), str(copy_of_client(tmp_path))])
    )
    monkeypatch.setenv("PYTHONPATH", path)
    yield client
    etcd.kill()
    etcd.wait()


def copy_of_client(tmp_path: Path) -> Path:
    """The client's modules alone: the others beside them would shadow the environment's."""
    folder = tmp_path / "packages"
    for module in ("etcd", "dns"):
        if (PACKAGES / module).is_dir():
            shutil.copytree(PACKAGES / module, folder / module)
    return folder


async def until_world(job: LocalJob, world: int, steps: int = 5) -> None:
    before = len(job.steps(world))
    await job.until(lambda: len(job.steps(world)) > before + steps, f"a world of {world}")


def test_client_works_with_this_python(endpoint: str) -> None:
    subprocess.run([sys.executable, "-c", "import etcd"], check=True)


@pytest.mark.long
async def test_job_over_etcd_completes_and_leaves_no_pod_behind(
    tmp_path: Path, endpoint: str
) -> None:
    async with local_job(tmp_path, "--steps", "20", backend="etcd-v2", endpoint=endpoint) as job:
        assert await job.until_ended() == "Complete"
        assert sorted(job.steps(2)) == list(range(1, 21))
        assert (job.pods("store"), job.status["failures"]) == ([], 0)


@pytest.mark.long
async def test_job_over_etcd_grows_and_survives_a_loss(tmp_path: Path, endpoint: str) -> None:
    async with local_job(tmp_path, *ENDLESS, backend="etcd-v2", endpoint=endpoint) as job:
        await until_world(job, 2)
        job.operator.cluster.scale_job("stock", 3)
        await until_world(job, 3)
        job.kill(job.pods()[1]["metadata"]["name"])
        await job.until(
            lambda: any(event.startswith("WorkerLost") for event in job.events()), "the loss"
        )
        await until_world(job, 3)
        assert job.status["failures"] == 0
