"""The export example: the weights of a checkpoint in a file that the real safetensors reads."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from torch import nn

from tests.paths import ROOT

safetensors = pytest.importorskip("safetensors", reason="the example needs it")
pytestmark = [pytest.mark.torch, pytest.mark.process]


@pytest.fixture
def export() -> Callable[..., None]:
    spec = importlib.util.spec_from_file_location(
        "to_safetensors", ROOT / "examples" / "export" / "to_safetensors.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Callable[..., None] = module.main
    return lambda *words: main([str(word) for word in words])


class Tied(nn.Module):
    """A model with tied weights, a buffer of another type and something that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.middle = nn.Linear(4, 4, dtype=torch.bfloat16)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("counts", torch.arange(3))

    def get_extra_state(self) -> str:
        return "of another kind"

    def set_extra_state(self, state: Any) -> None:
        assert state == "of another kind"


def save(folder: Path, **registered: Any) -> None:
    state = elastic.State(folder, **registered)
    state.restore()
    state.commit()
    assert state.flush()
    state.close()


def test_weights_are_those_of_the_model(
    export: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(1)
    model, target = Tied(), tmp_path / "model.safetensors"
    save(tmp_path / "run", model=model, optimizer=torch.optim.AdamW(model.parameters()), best=1.5)
    export(tmp_path / "run", target)
    assert (
        "_extra_state is left out: it is no tensor, but of the type str\n"
        in capsys.readouterr().out
    )
    with safetensors.safe_open(target, "pt") as file:
        assert file.metadata() == {"format": "pt", "step": "1"}
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    wanted = {name: each for name, each in model.state_dict().items() if name in found}
    assert set(found) == {"embed.weight", "head.weight", "middle.weight", "middle.bias", "counts"}
    torch.testing.assert_close(found, dict(wanted), rtol=0, atol=0)


def test_other_entries_and_what_is_none(export: Callable[..., None], tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    save(tmp_path / "run", net=elastic.Trained(model), best=1.5)
    target = tmp_path / "model.safetensors"
    for entry, problem in [
        ("model", "no model: model is not among best, net, step"),
        ("best", "best is no dict of tensors, but of the type float"),
        ("net", "choose --entry net/trained"),
        ("net/none", "none is not among"),
    ]:
        with pytest.raises(SystemExit, match=problem):
            export(tmp_path / "run", target, "--entry", entry)
    assert not target.exists()
    export(tmp_path / "run", target, "--entry", "net/trained")
    with safetensors.safe_open(target, "pt") as file:
        assert sorted(file.keys()) == ["0.bias", "0.weight"]
