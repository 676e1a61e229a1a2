"""Weights to begin with are read by one process of the first group, by none that goes on."""

from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.worker_image.state.test_state_memory import pods, run_pods, take_steps
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch
# The step, a weight, and how often this process has read the weights.
Begun = tuple[int, float, int]


def begin(folder: Path | None, steps: int = 0, value: float = 100.0) -> Begun:
    """How a rank begins that would read these weights, before it takes steps up to a number."""
    model = nn.Linear(2, 2, bias=False)
    reads = 0

    def load() -> None:
        nonlocal reads
        reads += 1
        nn.init.constant_(model.weight, value)

    state = elastic.State(
        folder,
        elastic.State.Options(every=1, initial=load),
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
    )
    begun = state.restore(), model.weight.mean().item(), reads
    take_steps(state, model, steps)
    assert state.flush()
    return begun


@pytest.mark.process
def test_rank_0_reads_them_and_sends_them_to_the_others() -> None:
    with pods(2) as servers:
        assert run_pods(servers, 2, begin, None) == [
            (0, 100.0, 1),
            (0, 100.0, 0),
            (0, 100.0, 0),
            (0, 100.0, 0),
        ]


@pytest.mark.process
def test_group_that_follows_one_without_a_step_has_them_in_memory() -> None:
    with pods(2) as servers:
        run_pods(servers[:1], 1, begin, None)
        # In the other order, so that rank 0 is a process whose pod has nothing.
        assert run_pods(servers[::-1], 1, begin, None, 0, 7.0) == [(0, 100.0, 0)] * 2
        assert run_pods(servers, 1, begin, None, 2, 7.0) == [(0, 100.0, 0)] * 2
        assert run_pods(servers, 1, begin, None, 2, 7.0) == [(2, 102.0, 0)] * 2


@pytest.mark.process
def test_without_memory_a_checkpoint_is_enough(tmp_path: Path) -> None:
    assert run_group(2, begin, tmp_path, 3) == [(0, 100.0, 1), (0, 100.0, 0)]
    assert run_group(2, begin, tmp_path, 3, 7.0) == [(3, 103.0, 0)] * 2


def begin_again() -> list[Begun]:
    """How one process begins in each of three groups, the second of which follows no step."""
    model = nn.Linear(2, 2, bias=False)
    reads = []
    state = elastic.State(
        None,
        elastic.State.Options(
            every=1, initial=lambda: reads.append(nn.init.constant_(model.weight, 100.0))
        ),
        model=model,
    )
    begun = []
    for step in (0, 2, 2):
        begun.append((state.restore(), model.weight.mean().item(), len(reads)))
        take_steps(state, model, step)
        state._leave_group()
    return begun


@pytest.mark.process
def test_process_that_restores_again_reads_them_once() -> None:
    wanted = [(0, 100.0, 1), (0, 100.0, 1), (2, 102.0, 1)]
    with pods(2) as servers:
        assert run_pods(servers, 1, begin_again) == [wanted, [(*each[:2], 0) for each in wanted]]


def test_process_without_agent_and_folder_keeps_what_it_has_trained() -> None:
    assert begin_again() == [(0, 100.0, 1), (0, 100.0, 1), (2, 102.0, 1)]


def fail(words: str) -> list[str]:
    model = nn.Linear(2, 2)

    def load() -> Any:
        if words:
            raise FileNotFoundError(words)
        return model.state_dict()

    state = elastic.State(None, elastic.State.Options(initial=load), model=model)
    raised = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as error:
            state.restore()
        raised.append(f"{error.value} because of {type(error.value.__cause__).__name__}")
    return raised


@pytest.mark.process
def test_failure_is_raised_on_all_ranks_and_names_it() -> None:
    words = "initial, which loads the first weights, failed: FileNotFoundError: no weights.bin"
    with pods(2) as servers:
        first, second = run_pods(servers, 1, fail, "no weights.bin")
    assert first == [f"{words} because of FileNotFoundError"] * 2, (
        "nothing is kept of the first attempt"
    )
    assert second == [f"rank 0: {words} because of NoneType"] * 2


def test_weights_that_are_returned_and_not_loaded_are_refused() -> None:
    assert fail("")[0].startswith(
        "initial returned a OrderedDict, and what it returns is not used: "
        "it must load the weights itself, as in "
        "lambda: model.load_state_dict(pretrained())"
    )


def half_frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("initial", "registered", "words"),
    [
        ({"weight": 1}, {}, "initial must be a function without arguments that loads the weights"),
        (
            print,
            {"adapter": elastic.Trained(half_frozen())},
            "adapter: rank 0 alone calls initial, "
            "and Trained sends no frozen weights to the others: load them on all ranks",
        ),
    ],
)
def test_what_initial_cannot_be(initial: Any, registered: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        elastic.State(None, elastic.State.Options(initial=initial), **registered)


def draw() -> list[float]:
    model = nn.Linear(2, 2)
    state = elastic.State(
        None, elastic.State.Options(initial=lambda: nn.init.normal_(model.weight)), model=model
    )
    state.restore()
    weights = model.weight.detach().clone()
    assert dist.get_world_size() == 2
    return weights.flatten().tolist()


@pytest.mark.process
def test_random_weights_are_those_of_rank_0() -> None:
    first, second = run_group(2, draw)
    assert first == second
