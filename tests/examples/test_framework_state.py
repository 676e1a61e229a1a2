"""A sharded training between a framework's checkpoints: the newer of memory and disk goes on."""

from tests.worker_image.cpu_fsdp2 import FusedAdamW, fully_shard

# isort: split

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from elastic_pytorch.pod.messages import CHANGE
from elastic_pytorch.pod.server import PodServer
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from tests.paths import ROOT
from tests.torch_features import needs_averages
from tests.worker_image.state.sharded.test_sharded_memory import outcome, until_copied
from tests.worker_image.state.test_state_memory import pods, run_pods

sys.path.append(str(ROOT / "examples" / "torchtitan"))

from framework_state import FrameworkState

pytestmark = [pytest.mark.process, pytest.mark.torch]

BEGINNING = 3  # the step that the pretrained weights have


class Framework:
    """A training with checkpoints of its own, one a step, by torch's DCP."""

    def __init__(self, folder: Path, *, pretrained: bool = False) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        for layer in (*self.model, self.model):
            fully_shard(layer)
        self.optimizer = FusedAdamW(self.model.parameters(), lr=0.05)
        self.folder, self.step, self.begins_with = folder, 0, BEGINNING * pretrained
        self.told: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]

    def newest(self) -> int:
        return max((int(path.name) for path in self.folder.iterdir()), default=0)

    def load(self, step: int) -> int:
        self.told.append(f"load {step}")
        self.step = step or self.begins_with
        if step:
            model, optimizer = get_state_dict(self.model, self.optimizer)
            dcp.load(
                {"model": model, "optimizer": optimizer}, checkpoint_id=self.folder / str(step)
            )
            set_state_dict(
                self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer
            )
        return self.step

    def save(self, step: int) -> None:
        self.told.append(f"save {step}")
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=self.folder / str(step))

    def settle(self) -> None:
        self.told.append("settle")

    def train_step(self) -> None:
        generator = torch.Generator().manual_seed(self.step)
        self.model(torch.randn(4, 5, generator=generator)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1


def let_copies_end(state: FrameworkState) -> None:
    if state._peers is not None and dist.get_world_size() > 1:
        until_copied(state)


def train(
    folder: Path, until: int, saves_at: int = 0, stops: bool = False, **options: Any
) -> tuple[list[str], Any]:
    """What the framework was told, and what there is after each step, the beginning's first."""
    os.environ.setdefault("ELASTIC_PYTORCH_NODE", f"node-{dist.get_rank()}")
    framework = Framework(folder, pretrained=options.pop("pretrained", False))
    kept = {"model": framework.model, "optimizer": framework.optimizer, "trainer": framework}
    state = FrameworkState(framework, FrameworkState.Options(**{"every": 1, **options}), **kept)
    assert state.restore() == framework.step
    outcomes = {framework.step: outcome(framework.model, framework.optimizer)}
    while framework.step < until:
        framework.train_step()
        if framework.step == saves_at:
            framework.save(framework.step)
        let_copies_end(state)
        state.commit()
        assert state.step == framework.step
        outcomes[framework.step] = outcome(framework.model, framework.optimizer)
    let_copies_end(state)
    if stops:
        state._settle_last(stop=True)
    return framework.told, outcomes


def train_with(options: dict[str, Any], *arguments: Any) -> tuple[list[str], Any]:
    return train(*arguments, **options)


def announce(servers: list[PodServer], leaving: set[int]) -> None:
    """Has each pod know whether it leaves."""
    for number, server in enumerate(servers):
        server.broadcast(
            {"kind": CHANGE, "round": 2, "orderly": False, "leaves": number in leaving}
        )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[float]]:
    """What there is after each step, with pods that keep nothing."""
    with pods(2) as servers:
        [(told, outcomes), *_] = run_pods(
            servers, 1, train_with, {"memory": False}, tmp_path_factory.mktemp("undisturbed"), 9
        )
    assert told == ["load 0"]
    return dict(outcomes)


def same(outcomes: dict[int, list[float]], undisturbed: dict[int, list[float]]) -> None:
    for step, values in outcomes.items():
        torch.testing.assert_close(values, undisturbed[step])


@needs_averages
@pytest.mark.parametrize(
    ("lost", "pods_after"), [(0, 1), pytest.param(1, 3, marks=pytest.mark.long)]
)
def test_memory_that_is_newer_than_the_checkpoint_goes_on_after_a_loss(
    lost: int, pods_after: int, undisturbed: dict[int, list[float]], tmp_path: Path
) -> None:
    with pods(2) as servers, pods(2) as new:
        run_pods(servers, 1, train, tmp_path, 6, 4)
        del servers[lost]
        for told, outcomes in run_pods([*servers, *new][:pods_after], 1, train, tmp_path, 9):
            assert (told, min(outcomes)) == ([], 6)
            same(outcomes, undisturbed)


@needs_averages
def test_checkpoint_that_is_newer_than_the_memory_is_loaded_and_kept(
    undisturbed: dict[int, list[float]], tmp_path: Path
) -> None:
    seldom = {"every": 100}
    with pods(2) as servers:
        run_pods(servers, 1, train_with, seldom, tmp_path, 5, 4)
        for told, outcomes in run_pods(servers, 1, train_with, seldom, tmp_path, 7):
            assert (told, min(outcomes)) == (["load 4"], 4)
            same(outcomes, undisturbed)
        del servers[0]
        [(told, outcomes)] = run_pods(servers, 1, train_with, seldom, tmp_path, 7)
        assert (told, min(outcomes)) == ([], 4), (
            "memory has what was loaded, and the other pod a copy"
        )
        same(outcomes, undisturbed)


@needs_averages
def test_checkpoint_is_loaded_if_all_pods_are_lost(
    undisturbed: dict[int, list[float]], tmp_path: Path
) -> None:
    with pods(2) as servers:
        run_pods(servers, 1, train, tmp_path, 6, 4)
    with pods(3) as servers:
        for told, outcomes in run_pods(servers, 1, train, tmp_path, 5):
            assert (told, min(outcomes)) == (["load 4"], 4)
            same(outcomes, undisturbed)


def test_training_that_begins_at_a_later_step_goes_on_from_memory(tmp_path: Path) -> None:
    with pods(2) as servers:
        [(told, outcomes), _] = run_pods(servers, 1, train_with, {"pretrained": True}, tmp_path, 5)
        assert (told, min(outcomes)) == (["load 0"], BEGINNING)
        [(told, outcomes), _] = run_pods(servers, 1, train_with, {"pretrained": True}, tmp_path, 6)
        assert (told, min(outcomes)) == ([], 5)


@pytest.mark.parametrize(
    ("leaving", "last"), [({1}, []), ({0, 1}, ["save 5"])], ids=["one pod leaves", "all pods leave"]
)
def test_stop_writes_a_checkpoint_only_if_no_pod_stays(
    leaving: set[int], last: list[str], tmp_path: Path
) -> None:
    with pods(2) as servers:
        announce(servers, leaving)
        for told, _ in run_pods(servers, 1, train, tmp_path, 5, 0, True):
            assert told == ["load 0", "settle", *last]
        told, outcomes = run_pods([servers[0]], 1, train, tmp_path, 5)[0]
        assert (told, min(outcomes)) == ([], 5)


def test_stop_without_memory_writes_a_checkpoint(tmp_path: Path) -> None:
    with pods(2) as servers:
        assert run_pods(servers, 1, train_with, {"memory": False}, tmp_path, 5, 0, True)[0][0] == [
            "load 0",
            "settle",
            "save 5",
        ]
        told, outcomes = run_pods(servers[:1], 1, train_with, {"memory": False}, tmp_path, 5)[0]
        assert (told, min(outcomes)) == (["load 5"], 5)
