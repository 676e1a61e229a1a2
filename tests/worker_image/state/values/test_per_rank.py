"""What a rank has of its own is given back to it, and to no other."""

from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import AdamW

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


class Stream:
    """The numbers of this rank, from a place on."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers, self.place = numbers, 0

    def take(self) -> int:
        self.place += 1
        return self.numbers[self.place - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": torch.tensor(self.numbers), "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.numbers, self.place = state["numbers"].tolist(), state["place"]


def deal(states: list[Any], rank: int, world_size: int) -> Any:
    left = sorted(
        number for state in states for number in state["numbers"].tolist()[state["place"] :]
    )
    return {"numbers": torch.tensor(left[rank::world_size]), "place": 0}


def take(folder: Path, steps: int, reshard: Any = None) -> list[int] | str:
    """The numbers that this rank takes on from the group before; or why it cannot."""
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    stream = Stream(list(range(rank, 12, world_size)))
    model = nn.Linear(2, 2)
    state = elastic.State(
        folder,
        elastic.State.Options(every=1),
        model=model,
        optimizer=AdamW(model.parameters()),
        stream=elastic.PerRank(stream, reshard=reshard),
    )
    try:
        state.restore()
    except RuntimeError as error:
        return str(error)
    taken = []
    for _ in range(steps):
        taken.append(stream.take())
        state.commit()
    assert state.flush()
    return taken


@pytest.mark.process
def test_each_rank_goes_on_from_its_own_place(tmp_path: Path) -> None:
    assert run_group(2, take, tmp_path, 2) == [[0, 2], [1, 3]]
    assert run_group(2, take, tmp_path, 1) == [[4], [5]]
    for refusal in run_group(3, take, tmp_path, 1):
        assert (
            "does not fit the stream of this script: "
            "2 ranks have each committed a state of their own, and this group has 3" in refusal
        )
        assert "reshard(states, rank, world_size)" in refusal
    assert run_group(3, take, tmp_path, 2, deal) == [[6, 9], [7, 10], [8, 11]]


def flush_an_open_step(folder: Path) -> tuple[bool, int]:
    stream = Stream(list(range(dist.get_rank(), 12, 2)))
    state = elastic.State(
        folder,
        elastic.State.Options(every=100),
        model=nn.Linear(2, 2),
        stream=elastic.PerRank(stream),
    )
    begun = state.restore()
    for _ in range(2 if begun else 30):
        state.commit()
    return state.flush(), begun


@pytest.mark.process
def test_flush_commits_what_all_ranks_have_of_their_own(tmp_path: Path) -> None:
    assert run_group(2, flush_an_open_step, tmp_path) == [(True, 0)] * 2
    assert run_group(2, flush_an_open_step, tmp_path) == [(True, 30)] * 2


def test_a_process_that_is_alone_keeps_its_own(tmp_path: Path) -> None:
    stream = Stream([3, 4, 5])
    state = elastic.State(
        tmp_path,
        elastic.State.Options(every=1),
        model=nn.Linear(2, 2),
        stream=elastic.PerRank(stream),
    )
    state.restore()
    assert stream.take() == 3
    state.commit()
    state.close()
    again = Stream([3, 4, 5])
    state = elastic.State(
        tmp_path,
        elastic.State.Options(every=1),
        model=nn.Linear(2, 2),
        stream=elastic.PerRank(again),
    )
    assert (state.restore(), again.take()) == (1, 4)
    state.close()


@pytest.mark.parametrize(
    ("each", "why"),
    [
        (nn.Linear(2, 2), "a model"),
        (AdamW(nn.Linear(2, 2).parameters()), "an optimizer"),
        (elastic.ElasticSampler(10, 2), "an ElasticSampler"),
        (torch.Generator(), "needs a state_dict"),
    ],
)
def test_what_cannot_be_kept_by_rank_is_refused(each: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        elastic.PerRank(each)
