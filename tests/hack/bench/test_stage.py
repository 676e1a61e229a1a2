import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import CommandFailed, Commands
from nodes import crowded, lone_victims
from records import Init, Step
from stage import Stage, prepared
from watcher import LEADER_LABEL, Waited, Watcher

from tests.paths import ROOT


@pytest.mark.parametrize(
    ("nodes", "victims", "moved"),
    [
        ({"a": "n1", "b": "n2", "c": "n3"}, ["c", "b"], None),
        ({"a": "n1", "b": "n1", "c": "n3"}, ["c"], "b"),
        ({"a": "n1", "b": "n2", "c": "n2"}, [], "c"),
        ({"a": "n1"}, [], None),
    ],
)
def test_a_nodes_loss_is_the_loss_of_one_worker_that_is_not_rank_0(
    nodes: dict[str, str], victims: list[str], moved: str | None
) -> None:
    assert lone_victims(nodes, list(nodes)) == victims
    assert crowded(nodes, list(nodes)) == moved


def test_the_examples_job_trains_without_end() -> None:
    manifest = prepared(yaml.safe_load((ROOT / "examples" / "all-reduce" / "job.yaml").read_text()))
    template = manifest["spec"]["template"]
    assert template["spec"]["containers"][0]["args"][-2:] == ["--steps", "1000000000"]
    assert template["metadata"]["labels"] == {"benchmark": "trial"}
    assert (manifest["spec"]["replicas"], manifest["spec"]["maxReplicas"]) == (3, 4)


class NoApi:
    """Nothing is asked of it."""


@pytest.fixture
def watcher() -> Watcher:
    api: Any = NoApi()
    return Watcher(api, "ns", "all-reduce")


def test_only_the_newest_groups_steps_make_a_job_whole(watcher: Watcher) -> None:
    watcher.records += [Init(1.0, "a", 0, 3), *(Step(1.0 + number, "a", number, 3) for number in range(1, 6))]
    assert watcher.steps_since(0.0, 3) == 5
    assert watcher.steps_since(4.0, 3) == 2
    assert watcher.steps_since(0.0, 2) == 0
    watcher.records += [Init(7.0, "a", 0, 2), Step(8.0, "a", 6, 2)]
    assert watcher.steps_since(0.0, 3) == 0
    assert watcher.steps_since(0.0, 2) == 1


def test_members_are_in_rank_order(watcher: Watcher) -> None:
    watcher.job = {"status": {"workers": [{"name": "b", "rank": 1}, {"name": "c"}, {"name": "a", "rank": 0}]}}
    assert watcher.members() == ["a", "b"]


class Making:
    """An API server that takes note of what is made."""

    def __init__(self) -> None:
        self.arguments: list[list[str]] = []

    async def ask(self, method: str, _path: str, body: Any = None) -> None:
        if method == "POST":
            self.arguments.append(body["spec"]["template"]["spec"]["containers"][0]["args"])


async def test_jobs_are_made_with_and_without_a_handler() -> None:
    api: Any = Making()
    commands: Any = None
    manifest = {
        "metadata": {"name": "all-reduce"},
        "spec": {"template": {"spec": {"containers": [{"args": ["train.py"]}]}}},
    }
    stage = Stage(api, commands, Watcher(api, "ns", "all-reduce"), "ns", manifest)
    await stage.make(handler=True)
    await stage.make(handler=False)
    assert api.arguments == [["train.py", "--save-on-sigterm"], ["train.py"]]


class HandingOver:
    """An API server that has another operator lead when the leader's pod is deleted."""

    def __init__(self) -> None:
        self.watcher: Watcher | None = None

    async def ask(self, method: str, path: str, body: object = None) -> None:
        assert (method, path.rpartition("/")[2]) == ("DELETE", "first")
        assert self.watcher is not None
        self.watcher.operators = {"second": an_operator("second", "n2", leads=True), "third": an_operator("third", "n3")}


def an_operator(name: str, node: str, *, leads: bool = False) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    labels = {LEADER_LABEL: "true"} if leads else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node}, "status": {"conditions": ready}}


class WholeStage(Stage):
    """One whose job is always whole."""

    async def whole(self, world: int) -> None:
        del world


@pytest.mark.parametrize(
    ("leader_node", "victim"),
    [
        ("n2", "b"),  # with one worker, not rank 0
        ("n1", "b"),  # with rank 0: the next one to lead is elsewhere
        ("n4", "b"),  # with none
    ],
)
async def test_the_leaders_node_is_that_of_one_worker_that_is_not_rank_0(leader_node: str, victim: str) -> None:
    api: Any = HandingOver()
    watcher = api.watcher = Watcher(api, "ns", "all-reduce")
    watcher.job = {"status": {"workers": [{"name": "a", "rank": 0}, {"name": "b", "rank": 1}]}}
    watcher.pods = {"a": {"spec": {"nodeName": "n1"}}, "b": {"spec": {"nodeName": "n2"}}}
    watcher.operators = {"first": an_operator("first", leader_node, leads=True), "other": an_operator("other", "n3")}
    commands: Any = None
    assert (
        await WholeStage(api, commands, watcher, "ns", {"metadata": {"name": "all-reduce"}}).victim_beside_leader(5) == victim
    )


async def test_what_does_not_come_is_not_waited_for_forever(watcher: Watcher) -> None:
    with pytest.raises(Waited, match="waited 0 s for a wonder"):
        await watcher.until(lambda: None, seconds=0.02, what="a wonder")


async def test_a_command_that_has_begun_ends_before_an_interruption_goes_on(tmp_path: Path) -> None:
    script, trace = tmp_path / "kubectl", tmp_path / "trace"
    script.write_text(f"#!/bin/sh\nsleep 0.3\necho done >{trace}\n")
    script.chmod(0o755)
    running = asyncio.create_task(Commands(script, tmp_path / "kubeconfig").kubectl("drain"))
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert trace.read_text() == "done\n"


async def test_a_command_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    script.write_text("#!/bin/sh\necho no such node >&2\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(CommandFailed, match="no such node"):
        await Commands(script, tmp_path / "kubeconfig").kubectl("drain")
