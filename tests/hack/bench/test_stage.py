from typing import Any

import pytest
from bench.nodes import crowded, lone_victims
from bench.stage import SetUp, Stage, read_job
from elastic_pytorch_client.reading.job_view import view_job
from measure.watcher import Watcher

from tests.paths import ROOT

JOB = ROOT / "examples" / "all-reduce" / "job.yaml"


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
    manifest = read_job(JOB, handler=False)
    template = manifest["spec"]["template"]
    assert template["spec"]["containers"][0]["args"][-2:] == ["--steps", "1000000000"]
    assert template["metadata"]["labels"] == {"benchmark": "trial"}
    assert (manifest["spec"]["replicas"], manifest["spec"]["maxReplicas"]) == (3, 4)


def test_members_are_in_rank_order() -> None:
    api: Any = None
    watcher = Watcher(api, "ns", "all-reduce")
    watcher.job = view_job({"status": {"workers": [{"name": "b", "rank": 1}, {"name": "c"}, {"name": "a", "rank": 0}]}})
    assert Stage(api, api, watcher, JOB).members() == ["a", "b"]


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
    stage = Stage(api, commands, Watcher(api, "ns", "all-reduce"), JOB)
    await stage.make(handler=True)
    await stage.make(handler=False)
    [with_handler, without] = api.arguments
    assert with_handler == [*without, "--save-on-sigterm"]
    assert "--save-on-sigterm" not in without


class HandingOver:
    """An API server that has another operator lead when the leader's pod is deleted."""

    def __init__(self) -> None:
        self.watcher: Watcher | None = None

    async def ask(self, method: str, path: str, body: object = None) -> None:
        assert (method, path.rpartition("/")[2]) == ("DELETE", "first")
        assert self.watcher is not None
        self.watcher.operators = {"second": an_operator("second", "n2"), "third": an_operator("third", "n3")}
        self.watcher.holder = "second"


def an_operator(name: str, node: str) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"conditions": ready}}


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
    watcher.job = view_job({"status": {"workers": [{"name": "a", "rank": 0}, {"name": "b", "rank": 1}]}})
    watcher.pods = {"a": {"spec": {"nodeName": "n1"}}, "b": {"spec": {"nodeName": "n2"}}}
    watcher.operators = {"first": an_operator("first", leader_node), "other": an_operator("other", "n3")}
    watcher.holder = "first"
    commands: Any = None
    stage = WholeStage(api, commands, watcher, JOB)
    assert await stage.lone_victim(leader=True) == victim


def test_script_with_a_set_up_may_do_it_before_it_joins_and_have_spares() -> None:
    file = ROOT / "examples" / "all-reduce" / "elastic.yaml"
    spec = read_job(file, handler=False, set_up=SetUp(60.0, prepare=True, spares=1))["spec"]
    assert spec["template"]["spec"]["containers"][0]["args"][-2:] == ["--set-up-seconds", "60"]
    assert (spec["prepare"], spec["spares"]) == ({}, 1)
    plain = read_job(file, handler=False)["spec"]
    assert "--set-up-seconds" not in plain["template"]["spec"]["containers"][0]["args"]
    assert not plain.keys() & {"prepare", "spares"}
