"""An object begun differently on each rank is refused by name, not replaced by rank 0's."""

import os
import random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.pod.messages import CHANGE, LOCAL_SOCKET
from elastic_pytorch.pod.planned_stop import PlannedStop, script_end
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state.state import State
from elastic_pytorch.state.values.alike import digest_of
from elastic_pytorch.state.values.per_rank import PerRank
from elastic_pytorch.training.sampler import ElasticSampler
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import StepLR

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


class Shards:
    """A stream's place in a streaming dataset: this rank's shards in a shuffled order."""

    def __init__(self, rank: int) -> None:
        self.shards = list(range(rank, 40, 2))
        random.Random(7).shuffle(self.shards)

    def state_dict(self) -> dict[str, Any]:
        return {"shards": self.shards}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shards = state["shards"]


def outcome_of_restore(**registered: Any) -> str:
    try:
        State(None, **registered).restore()
    except RuntimeError as error:
        return str(error)
    return "restored"


def restore_shards() -> str:
    return outcome_of_restore(model=nn.Linear(2, 2), loader=Shards(dist.get_rank()))


@pytest.mark.process
def test_a_state_of_a_rank_s_own_is_refused_by_name_on_all_ranks() -> None:
    for message in run_group(2, restore_shards):
        assert message.startswith("loader begins with another state on rank 1 than on rank 0")
        assert "elastic.PerRank(loader)" in message
        assert "ElasticSampler" in message


def restore_twice() -> str:
    """The second time, rank 1 has gone on alone: what it holds is no beginning."""
    shards = Shards(0)
    state = State(None, model=nn.Linear(2, 2), loader=shards)
    state.restore()
    if dist.get_rank() == 1:
        shards.shards = []
    state._leave_group()
    try:
        state.restore()
    except RuntimeError as error:
        return str(error)
    return "restored"


@pytest.mark.process
def test_what_has_changed_since_the_first_load_is_no_beginning() -> None:
    assert run_group(2, restore_twice) == ["restored", "restored"]


def restore_models() -> str:
    """Models that each rank has begun by chance, and what comes with them."""
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(2, 2)
    optimizer = AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler = StepLR(optimizer, 2)
    return outcome_of_restore(
        model=model, optimizer=optimizer, scheduler=scheduler, sampler=ElasticSampler(100, 5)
    )


@pytest.mark.process
def test_models_begin_as_rank_0_s_does() -> None:
    assert run_group(2, restore_models) == ["restored", "restored"]


def restore_one_more() -> str:
    more = {"loader": Shards(0)} if dist.get_rank() == 0 else {}
    return outcome_of_restore(model=nn.Linear(2, 2), **more)


@pytest.mark.process
def test_an_object_that_another_rank_lacks_is_refused() -> None:
    assert all(
        message.startswith("only rank 0 has loader, and rank 1 does not")
        for message in run_group(2, restore_one_more)
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [2, 3]}, {"b": [2, 3], "a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"seen": {"x", "y", "z"}}, {"seen": {"z", "y", "x"}}, True),
        ({"seen": {"x"}}, {"seen": {"y"}}, False),
        ({1: "x", 2: "y"}, {2: "y", 1: "x"}, True),
        (
            {"a": torch.ones(2), "b": torch.zeros(3)},
            {"b": torch.zeros(3), "a": torch.ones(2)},
            True,
        ),
        ({"a": torch.ones(2)}, {"a": torch.zeros(2)}, False),
        ({"a": torch.ones(2)}, {"a": torch.ones(2, 1)}, False),
        ({"a": torch.tensor([float("nan")])}, {"a": torch.tensor([float("nan")])}, True),
        ({"a": torch.ones(4)[::2]}, {"a": torch.ones(2)}, True),
        ({"on": torch.device("cuda:0")}, {"on": torch.device("cuda:1")}, True),
        ({"a": torch.ones(0)}, {"a": torch.ones(0)}, True),
        (
            {"a": torch.ones(2, dtype=torch.bfloat16)},
            {"a": torch.ones(2, dtype=torch.float16)},
            False,
        ),
    ],
)
def test_a_digest_is_of_the_content(one: Any, other: Any, same: bool) -> None:
    assert (digest_of(one) == digest_of(other)) is same


class WithoutState:
    """It has the methods, and keeps nothing."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state


class Metric(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(())


@pytest.mark.parametrize(
    ("each", "held"),
    [
        (WithoutState(seen=[1]), "seen"),
        (
            WithoutState(shadow={"w": torch.ones(1)}, name="average", mean=torch.zeros(())),
            "shadow, mean",
        ),
        (Metric(), "total"),
        (nn.ModuleDict({"accuracy": Metric()}), "total"),
        (WithoutState(), ""),
        (WithoutState(rate=0.1, names=("a", "b"), failed=[]), ""),
        (nn.CrossEntropyLoss(label_smoothing=0.1), ""),
        (nn.Sequential(nn.ReLU(), nn.Dropout(0.1)), ""),
        (torch.amp.GradScaler("cpu", enabled=False), ""),
        (PerRank(WithoutState(seen=[1])), ""),
    ],
)
def test_an_empty_state_of_what_holds_something_is_refused_by_name(each: Any, held: str) -> None:
    outcome = outcome_of_restore(metric=each)
    assert outcome.startswith(
        f"metric has an empty state_dict, and holds {held}: " if held else "restored"
    )


class Meter:
    """It sums up the losses of its own rank, as most scripts have one."""

    def __init__(self) -> None:
        self.total = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def count_losses(which: str) -> str:
    meter: Any = Meter()
    if which == "of rank 0":
        meter.rank_0_counts = True
    state = State(
        None, model=nn.Linear(2, 2), meter=PerRank(meter) if which == "by rank" else meter
    )
    state.restore()
    try:
        for _ in range(3):
            meter.total += 1.0 if which == "the same" else dist.get_rank()
            state.commit()
    except RuntimeError as error:
        return str(error)
    return f"went on to step {state.step}"


@pytest.mark.process
@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("of its own", "meter has another state on rank 1 than on rank 0"),
        ("the same", "went on to step 3"),
        ("by rank", "went on to step 3"),
        ("of rank 0", "went on to step 3"),
    ],
)
def test_object_that_grows_apart_is_refused_by_name_after_the_first_step(
    which: str, words: str
) -> None:
    for message in run_group(2, count_losses, which):
        assert message.startswith(words)


class Asked(Meter):
    """A meter that counts how often its state is asked for."""

    times = 0

    def state_dict(self) -> dict[str, Any]:
        self.times += 1
        return super().state_dict()


def stop_before_the_first_commit(socket: str) -> tuple[str, int]:
    rank = str(dist.get_rank())
    os.environ |= {LOCAL_SOCKET: socket, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}
    script_end.orderly = True  # a stop ends the process, as where the agent runs the script
    meter = Asked()
    state = State(None, State.Options(every=10**9), model=nn.Linear(2, 2), meter=meter)
    state.restore()
    before = 0
    try:
        while True:
            before = meter.times
            state.commit()
    except PlannedStop as stop:
        return type(stop).__name__, meter.times - before


@pytest.mark.process
def test_ranks_are_compared_once_where_the_first_commit_is_also_the_last() -> None:
    server = PodServer()
    socket = server.prepare()
    server.start()
    server.broadcast({"kind": CHANGE, "round": 2, "orderly": True, "leaves": True})
    try:
        told = run_group(2, stop_before_the_first_commit, socket)
    finally:
        server.close()
    assert told == [("PlannedStop", 2), ("PlannedStop", 1)], (
        "compared on both, and kept by the pod's first process"
    )
