"""What a worker keeps in its agent outlives it, and is on the disk before the agent ends."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.stopping.stacks import children
from elastic_pytorch.storage.checkpoint_folder import by_name
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat

from tests.torch_features import needs_averages
from tests.worker_image.agents import SCRIPTS, Agents, Events
from tests.worker_image.object_storage import Bucket
from tests.worker_image.scripted_operator import ScriptedOperator
from tests.worker_image.scripts.whole_checkpoints import newest

pytestmark = pytest.mark.process


def sockets(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        return {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}  # noqa: PTH115, PTH208
    return set()


def listening(path: str) -> set[str]:
    """How the sockets that are bound to a path are called in a process's list of descriptors."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return {f"socket:[{row[6]}]" for row in rows if row[-1] == path}


def test_a_state_outlives_its_worker(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    agent = agents("w0", SCRIPTS / "keeps.py", tmp_path / "folder")
    operator.begin("w0")
    (kept,) = events.wait(what="kept")
    assert kept["step"] == 7

    # The server's own sockets are the agent's alone: not the forkserver's, not the worker's.
    servers = listening(kept["path"])
    assert servers & sockets(agent.process.pid)
    (forkserver,) = [pid for pid in children(agent.process.pid) if kept["pid"] in children(pid)]
    assert not servers & sockets(forkserver)
    assert not servers & sockets(kept["pid"])

    for step in (7, 14):
        os.kill(events.all(what="kept")[-1]["pid"], signal.SIGKILL)
        operator.wait_for("failed", "w0")
        number = operator.declare("w0")
        operator.wait_for("running", "w0", number=number)
        events.wait(what="found", step=step, version=[1, step])
        events.wait(what="kept", step=step + 7)

    agent.signal()  # the last one asks for a flush as it ends
    assert agent.wait() == 143
    assert [checkpoint.version for checkpoint in newest(tmp_path / "folder")] == [
        StateVersion(1, 21)
    ]
    assert not Path(kept["path"]).parent.exists()


def test_saves_that_fail_in_a_row_are_told_until_one_succeeds(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    def failed_saves() -> tuple[int, str]:
        progress = parse_heartbeat("w0", operator.last("w0").body, 0.0).progress
        return progress.failed_saves, progress.save_error

    folder, away = tmp_path / "folder", tmp_path / "away"
    agent = agents(
        "w0", SCRIPTS / "stateful.py", "--folder", folder, "--flush-seconds", 0.1, "--epochs", 10**6
    )
    operator.begin("w0")
    operator.wait(lambda: list(folder.glob("*.elastic")))
    folder.rename(away)
    folder.write_text("a file where the folder was")
    operator.wait(lambda: failed_saves()[0] >= 3)
    assert str(folder) in failed_saves()[1]
    folder.unlink()
    away.rename(folder)
    operator.wait(lambda: failed_saves() == (0, ""))
    agent.kill()


@pytest.mark.parametrize(
    "kind", [pytest.param("--sharded", marks=[pytest.mark.torch, needs_averages]), "--open-ended"]
)
def test_a_worker_succeeds_when_its_last_step_is_on_the_disk_and_says_that_it_waits_for_that(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path, slow: Path, kind: str
) -> None:
    def saving_seconds() -> float:
        return -(parse_heartbeat("w0", operator.last("w0").body, 0.0).saving_since or 0.0)

    folder, away = tmp_path / "folder", tmp_path / "away"
    steps = ("--epochs", 1, "--samples", 2400, "--step-seconds", 0.5, "--slow", slow)
    agents("w0", SCRIPTS / "stateful.py", kind, "--folder", folder, "--flush-seconds", 0.1, *steps)
    operator.begin("w0")
    operator.wait(lambda: list(folder.glob("*ed")) or list(folder.glob("*.elastic")))
    folder.rename(away)
    folder.write_text("a file where the folder was")
    slow.unlink()
    operator.wait(lambda: saving_seconds() > 1.5)
    assert operator.last("w0").body["state"] == "running"
    folder.unlink()
    operator.wait_for("succeeded", "w0")
    assert [path.name for path in folder.iterdir() if "s000000200" in path.name]
    operator.end("complete")


def test_a_state_in_object_storage_outlives_all_pods(
    operator: ScriptedOperator, agents: Agents, events: Events, bucket: Bucket
) -> None:
    """The agent's process writes the objects, from the last of which new pods go on."""
    arguments = ["--folder", bucket.url, "--flush-seconds", 0.1, "--epochs", 10**6]
    agent = agents("w0", SCRIPTS / "stateful.py", *arguments, **bucket.environment())
    operator.begin("w0")
    operator.wait(lambda: any(version.step >= 3 for version, _ in by_name(bucket.url)))
    agent.kill()
    agent.wait()
    last = by_name(bucket.url)[0].version
    assert all(call not in agent.text() for call in ("no checkpoint", "Traceback"))

    agents("w1", SCRIPTS / "stateful.py", *arguments, **bucket.environment())
    operator.begin("w1")
    operator.wait(lambda: by_name(bucket.url)[0].version.generation == 2)
    assert by_name(bucket.url)[0].version.step >= last.step
