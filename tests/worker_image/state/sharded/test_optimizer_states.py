"""Optimizers that have not stepped all parameters: checkpoints change none, any group goes on."""

from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_pytorch.state.sharded.optimizer_states import load_by_name, state_by_name
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import AdamW

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


class TwoHeads(nn.Module):
    """Only one of its heads has a gradient in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, inputs: torch.Tensor, head: int) -> torch.Tensor:
        outputs: torch.Tensor = self.heads[head](inputs)
        return outputs


def train(folder: Path, begin: int, heads: str) -> tuple[int, list[float], list[float]]:
    """Commits steps of the heads that are named, or, for "-", a step without an optimizer's.

    Returns:
        Where it has begun, the weights, and how many steps of the optimizer each parameter with a
        state has seen.
    """
    torch.manual_seed(0)
    model = fully_shard(TwoHeads())
    optimizer = AdamW(model.parameters(), lr=0.1)
    state = ShardedState(
        folder,
        ShardedState.Options(every=1, memory=False, keep=99),
        model=model,
        optimizer=optimizer,
    )
    begun = state.restore()
    for head in heads[begin:]:
        if head != "-":
            model(torch.ones(2, 4), int(head)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        state.commit()
    weights = [
        number for each in model.parameters() for number in each.full_tensor().flatten().tolist()
    ]
    return begun, weights, [float(each["step"]) for each in optimizer.state.values()]


@pytest.mark.process
def test_a_checkpoint_has_an_optimizer_make_no_step(tmp_path: Path) -> None:
    [(_, wanted, _), _] = run_group(2, train, tmp_path / "one", 0, "00")
    for _, weights, steps in run_group(2, train, tmp_path / "other", 0, "--00"):
        assert (weights, steps) == (wanted, [2.0, 2.0])


@pytest.mark.process
@pytest.mark.parametrize(
    "done", ["-0", *(pytest.param(done, marks=pytest.mark.long) for done in ("--", "00"))]
)
def test_a_group_of_another_size_goes_on_where_a_parameter_has_had_no_gradient_yet(
    done: str, tmp_path: Path
) -> None:
    heads = done + "0011"
    [(_, undisturbed, wanted), _] = run_group(2, train, tmp_path / "undisturbed", 0, heads)
    run_group(2, train, tmp_path, 0, done)
    for begun, weights, steps in run_group(1, train, tmp_path, len(done), heads):
        assert (begun, steps) == (len(done), wanted)
        torch.testing.assert_close(weights, undisturbed)


def test_names_are_those_of_torch() -> None:
    layers = [nn.Linear(2, 3), torch.compile(nn.Linear(3, 3)), checkpoint_wrapper(nn.Linear(3, 2))]
    model = nn.Sequential(*layers)
    groups = [
        {"params": layers[2].parameters(), "lr": 0.5},
        {"params": [*layers[0].parameters(), *layers[1].parameters()]},
    ]
    optimizer, other = AdamW(groups), AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    registered: dict[str, Any] = {"model": model, "optimizer": optimizer}
    saved, known = state_by_name(optimizer, registered), get_optimizer_state_dict(model, optimizer)
    assert saved["param_groups"] == known["param_groups"]
    torch.testing.assert_close(saved["state"], known["state"], rtol=0, atol=0)
    load_by_name(other, registered, saved)
    assert len(other.state) == 6
