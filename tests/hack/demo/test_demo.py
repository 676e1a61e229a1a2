"""The whole demo, on a cluster in memory."""

import asyncio
import importlib.util
import io
from pathlib import Path
from typing import Any

import acts
import kubectl as kubectl_module
import pytest
import yaml
from job import JobStatus
from rich.console import Console

from tests.hack.demo.fake_kubectl import FakeKubectl
from tests.paths import ROOT


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("observer.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("view.LINE_SECONDS", 0.2)
    monkeypatch.setattr("view.REFRESH_SECONDS", 0.05)


@pytest.fixture
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("demo_main", ROOT / "hack" / "demo" / "__main__.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def manifest(steps: int = 250) -> dict[str, Any]:
    return acts.prepare(yaml.safe_load((ROOT / "examples" / "char-lm" / "job.yaml").read_text()), steps)


def screen(*, terminal: bool) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, force_terminal=terminal, width=110, legacy_windows=False), output


def test_the_job_gets_the_steps_and_prints_each() -> None:
    arguments = manifest(77)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-4:] == ["--steps", "77", "--log-every", "1"]


@pytest.mark.parametrize("terminal", [False, True])
async def test_plays_all_acts_and_deletes_the_job(demo: Any, terminal: bool) -> None:
    kubectl = FakeKubectl()
    console, output = screen(terminal=terminal)
    assert await demo.show(kubectl, manifest(), console, keep=False) == 0
    assert kubectl.commands[:2] == ["delete", "apply"]
    assert kubectl.commands[2].startswith("kill char-lm-worker-")
    assert kubectl.commands[3:] == ["scale 4", "scale 2", "delete"]
    text = output.getvalue()
    for line in ("a worker's pod is killed", "its replacement joins", "scaled up", "scaled down"):
        assert line in text
    assert "Complete after 250 steps" in text
    assert "never seen 1.640" in text.replace("\n", " ")


async def test_keeps_the_job_when_asked(demo: Any) -> None:
    kubectl = FakeKubectl()
    console, _ = screen(terminal=False)
    assert await demo.show(kubectl, manifest(), console, keep=True) == 0
    assert kubectl.commands[-1] == "scale 2"


async def test_a_failed_job_is_left_and_the_user_is_told_where_to_look(demo: Any) -> None:
    kubectl = FakeKubectl(fail_at=10)
    console, output = screen(terminal=False)
    assert await demo.show(kubectl, manifest(), console, keep=False) == 1
    assert kubectl.commands == ["delete", "apply"]
    assert "ValueError: boom" in output.getvalue()
    assert "kubectl describe epj/char-lm" in output.getvalue()


async def test_an_act_that_is_not_recovered_from_fails_the_demo(demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acts.RECOVERY_SECONDS", 0.5)
    kubectl = FakeKubectl(stuck_after=1)
    console, output = screen(terminal=False)
    assert await demo.show(kubectl, manifest(), console, keep=False) == 1
    assert "for the training to go on without" in output.getvalue()


async def test_too_few_steps_for_the_acts(demo: Any) -> None:
    console, output = screen(terminal=False)
    assert await demo.show(FakeKubectl(), manifest(steps=40), console, keep=False) == 1
    assert "more --steps" in output.getvalue()


async def test_an_interrupt_deletes_the_job(demo: Any) -> None:
    kubectl = FakeKubectl()
    console, output = screen(terminal=True)
    playing = asyncio.create_task(demo.show(kubectl, manifest(), console, keep=True))
    await asyncio.sleep(0.3)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert kubectl.commands[-1] == "delete"
    assert kubectl.pods == []
    assert "Interrupted. Deleting char-lm" in output.getvalue()


def test_a_status_not_yet_written_reads_as_pending() -> None:
    status = JobStatus.of({"metadata": {"name": "char-lm"}})
    assert (status.state, status.world_size, status.members) == ("Pending", 0, [])


async def test_kubectl_is_called_and_read_as_a_process(tmp_path: Path) -> None:
    binary = tmp_path / "kubectl"
    binary.write_text(
        '#!/bin/sh\nif [ "$1" = get ]; then\n'
        'echo \'{"type":"ADDED","object":{"a":1}}\'; echo \'{"type":"DELETED","object":{}}\'\n'
        'elif [ "$1" = logs ]; then echo "$KUBECONFIG"; echo second\n'
        "else echo no such thing >&2; exit 1; fi\n"
    )
    binary.chmod(0o755)
    kubectl = kubectl_module.Kubectl(binary, tmp_path / "kubeconfig", "char-lm")
    assert [event async for event in kubectl.watch_job()] == [("ADDED", {"a": 1}), ("DELETED", {})]
    assert [line async for line in kubectl.follow_log("a")] == [str(tmp_path / "kubeconfig"), "second"]
    with pytest.raises(kubectl_module.KubectlError, match="no such thing"):
        await kubectl.scale(2)
