"""The whole demo, on a cluster in memory."""

import asyncio
import io
import re
from typing import Any

import pytest
from demo import __main__ as demo
from rich.console import Console

from tests.hack.demo.counting_cluster import CountingCluster

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.watcher.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("measure.watcher.LOOK_SECONDS", 0.005)
    monkeypatch.setattr("demo.view.LINE_SECONDS", 0.2)
    monkeypatch.setattr("demo.view.REFRESH_SECONDS", 0.05)


def manifest(steps: int = 250) -> dict[str, Any]:
    return demo.read_manifest(steps)


async def show(cluster: CountingCluster, manifest: dict[str, Any], console: Console, *, keep: bool) -> int:
    return await demo.show(cluster, cluster, manifest, console, keep=keep)


def screen(*, terminal: bool) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, force_terminal=terminal, width=110, legacy_windows=False), output


def test_the_job_gets_the_steps_and_prints_each() -> None:
    arguments = manifest(77)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-4:] == ["--steps", "77", "--log-every", "1"]


def test_another_example_is_named() -> None:
    job = demo.read_manifest(77, "lightning")
    assert job["metadata"]["name"] == "lightning"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][-2:] == ["--steps", "77"]


@pytest.mark.parametrize("terminal", [False, True])
async def test_plays_all_acts_and_deletes_the_job(terminal: bool) -> None:
    cluster = CountingCluster()
    console, output = screen(terminal=terminal)
    assert await show(cluster, manifest(), console, keep=False) == 0
    assert cluster.commands[:2] == ["delete", "apply"]
    assert cluster.commands[2].startswith("kill char-lm-worker-")
    assert cluster.commands[3:] == ["scale 4", "scale 2", "delete"]
    text = output.getvalue()
    for line in ("a worker's pod is killed", "its replacement joins", "scaled up", "scaled down"):
        assert line in text
    assert "Complete after 250 steps" in text
    assert "by its log, not known by its status" in text.replace("\n", " ")
    assert "never seen 1.640" in text.replace("\n", " ")


async def test_records_in_a_torn_line_are_shown_as_those_in_whole_ones() -> None:
    console, output = screen(terminal=False)
    assert await show(CountingCluster(log="torn"), manifest(), console, keep=False) == 0
    [killed] = [line for line in output.getvalue().splitlines() if line.strip().startswith("a worker's pod is killed  ")]
    assert re.search(r"3 -> 2 +\d\.\d s after +\d\.\d s +\d+", killed), "its pause is known"


async def test_demo_succeeds_without_a_log_and_says_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.acts.LOG_SECONDS", 0.02)
    console, output = screen(terminal=False)
    assert await show(CountingCluster(log="silent"), manifest(), console, keep=False) == 0
    text = " ".join(output.getvalue().split())
    for line in ("a worker's pod is killed 3 -> 2 0.0 s after -", "scaled up 3 -> 4 0.0 s after - 0", "scaled down 4 -> 2"):
        assert line in text
    assert "Complete after 250 steps. Its log does not tell with what loss" in text


async def test_keeps_the_job_when_asked() -> None:
    cluster = CountingCluster()
    console, _ = screen(terminal=False)
    assert await show(cluster, manifest(), console, keep=True) == 0
    assert cluster.commands[-1] == "scale 2"


async def test_a_failed_job_is_left_and_the_user_is_told_where_to_look() -> None:
    cluster = CountingCluster(fail_at=10)
    console, output = screen(terminal=False)
    assert await show(cluster, manifest(), console, keep=False) == 1
    assert cluster.commands == ["delete", "apply"]
    assert "ValueError: boom" in output.getvalue()
    assert "kubectl describe epj/char-lm" in output.getvalue()


async def test_an_act_that_is_not_recovered_from_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.acts.HANG_SECONDS", 0.5)
    cluster = CountingCluster(stuck_after=1)
    console, output = screen(terminal=False)
    assert await show(cluster, manifest(), console, keep=False) == 1
    assert "for the training to go on without" in output.getvalue()


async def test_too_few_steps_for_the_acts() -> None:
    console, output = screen(terminal=False)
    assert await show(CountingCluster(), manifest(steps=40), console, keep=False) == 1
    assert "more --steps" in output.getvalue()


async def test_an_interrupt_deletes_the_job() -> None:
    cluster = CountingCluster()
    console, output = screen(terminal=True)
    playing = asyncio.create_task(show(cluster, manifest(), console, keep=True))
    await asyncio.sleep(0.3)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert cluster.commands[-1] == "delete"
    assert cluster.pods == []
    assert "Interrupted. Deleting char-lm" in output.getvalue()
