"""The whole demo, on a cluster in memory; and the one without a cluster, whose real processes train."""

import asyncio
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from demo import __main__ as demo
from demo.acts import trains_with
from elastic_pytorch_local.faults.driver import DriverError
from elastic_pytorch_local.faults.local_driver import LocalDriver
from elastic_pytorch_local.faults.watcher import Watcher, background
from rich.console import Console

from tests.hack.demo.counting_cluster import CountingCluster

pytestmark = [pytest.mark.process, pytest.mark.torch]

WAIT_SECONDS = 180.0


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_pytorch_local.faults.watcher.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("elastic_pytorch_local.faults.watcher.LOOK_SECONDS", 0.005)
    monkeypatch.setattr("demo.view.LINE_SECONDS", 0.2)
    monkeypatch.setattr("demo.view.REFRESH_SECONDS", 0.05)


async def show(cluster: CountingCluster, *, steps: int = 250, terminal: bool = False) -> tuple[int, str]:
    """The exit status of the demo, and what it has printed."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=110, legacy_windows=False)
    status = await demo.show(cluster, demo.read_manifest(steps), console)
    return status, output.getvalue()


def test_job_of_each_example_gets_the_steps_and_prints_each() -> None:
    made = [demo.read_manifest(77, example) for example in ("char-lm", "lightning")]
    arguments = [job["spec"]["template"]["spec"]["containers"][0]["args"] for job in made]
    assert arguments[0][-4:] == ["--steps", "77", "--log-every", "1"]
    assert (made[1]["metadata"]["name"], arguments[1][-2:]) == ("lightning", ["--steps", "77"])


@pytest.mark.parametrize("terminal", [False, True])
async def test_plays_all_acts_and_deletes_the_job(terminal: bool) -> None:
    cluster = CountingCluster()
    status, text = await show(cluster, terminal=terminal)
    assert status == 0
    assert cluster.commands[:2] == ["delete", "apply"]
    assert cluster.commands[2].startswith("kill char-lm-worker-")
    assert cluster.commands[3:] == ["scale 4", "scale 2", "delete"]
    told = ["a worker's pod is killed", "its replacement joins", "scaled up", "scaled down", "Complete after 250 steps"]
    assert not [line for line in told if line not in text]
    assert "never seen 1.640" in text.replace("\n", " ")


async def test_demo_needs_no_whole_line_of_a_log_and_says_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    status, text = await show(CountingCluster(log="torn"))
    [killed] = [line for line in text.splitlines() if line.strip().startswith("a worker's pod is killed  ")]
    assert status == 0
    assert re.search(r"3 -> 2 +\d\.\d s after +\d\.\d s +\d+", killed), "its pause is known"
    monkeypatch.setattr("demo.acts.LOG_SECONDS", 0.02)
    status, text = await show(CountingCluster(log="silent"))
    assert status == 0
    for line in ("a worker's pod is killed 3 -> 2 0.0 s after -", "scaled up 3 -> 4 0.0 s after - 0", "scaled down 4 -> 2"):
        assert line in " ".join(text.split())
    assert "Complete after 250 steps. Its log does not tell with what loss" in " ".join(text.split())


async def test_demo_that_shows_less_than_it_is_for_fails_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.acts.HANG_SECONDS", 0.5)
    status, text = await show(cluster := CountingCluster(fail_at=10))
    assert (status, cluster.commands) == (1, ["delete", "apply"]), "the failed job is left"
    assert "ValueError: boom" in text and "kubectl describe epj/char-lm" in text
    status, text = await show(CountingCluster(stuck_after=1))
    assert (status, "for the training to go on without" in text) == (1, True)
    status, text = await show(CountingCluster(), steps=40)
    assert (status, "more --steps" in text) == (1, True)


async def test_an_interrupt_deletes_the_job() -> None:
    cluster = CountingCluster()
    playing = asyncio.create_task(show(cluster))
    async with asyncio.timeout(30):
        while len(cluster.pods) < 3:
            await asyncio.sleep(0.01)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert (cluster.commands[-1], cluster.pods) == ("delete", [])


async def test_demo_without_a_cluster_can_apply_watch_kill_scale_and_delete_a_job(tmp_path: Path) -> None:
    async with LocalDriver.started(tmp_path, demo.EXAMPLE_PATHS) as driver:
        watcher = Watcher(driver, "char-lm")
        manifest = demo.local_manifest(100_000)
        manifest["spec"]["replicas"] = 2
        await driver.create_job(manifest)
        async with background(watcher.run()):
            await watcher.until(lambda: trains_with(watcher.job, 2), seconds=WAIT_SECONDS, what="two workers to train")
            with driver.page() as url:
                shown = await asyncio.to_thread(read, f"{url}jobs/{driver.namespace}/char-lm")
                assert (shown["row"]["workers"], shown["row"]["world"]) == ("2/2", 2)
                assert (await asyncio.to_thread(read, f"{url}logs/{driver.namespace}/char-lm?index=0"))["lines"]
            victim = watcher.job.members[-1].name
            await driver.delete_pod(victim, force=True)
            await watcher.until(lambda: victim not in watcher.pods, seconds=WAIT_SECONDS, what="the pod to be gone")
            await driver.scale_job("char-lm", 1)
            await watcher.until(lambda: trains_with(watcher.job, 1), seconds=WAIT_SECONDS, what="one worker to train")
            assert f"{victim} | " in driver.last_words()
            await driver.delete_job("char-lm")
            with pytest.raises(DriverError):
                await driver.scale_job("char-lm", 2)
            await watcher.until(
                lambda: watcher.deleted and not watcher.pods, seconds=WAIT_SECONDS, what="the deletion to be seen"
            )
        assert watcher.broken is None


def read(url: str) -> Any:
    with urlopen(url, timeout=WAIT_SECONDS) as answer:
        return json.load(answer)
