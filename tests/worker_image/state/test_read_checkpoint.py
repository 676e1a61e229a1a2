"""Checkpoints that are read elsewhere: in a process without a group and without an agent."""

import shutil
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.contents import LAYOUT
from elastic_pytorch.state.read_checkpoint import reads_alone
from elastic_pytorch.state_format.payload import payload_chunks
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import by_name, write
from torch import nn

from tests.documentation import blocks
from tests.paths import ROOT
from tests.torch_features import needs_fsdp2, needs_sharded_tensors
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def train(folder: Path, *steps: int, name: str = "") -> nn.Module:
    """Trains up to each of these steps, and leaves a checkpoint of each, and no other."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    state = elastic.State(
        folder, elastic.State.Options(name=name, keep=9), model=model, optimizer=optimizer, best=9.0
    )
    state.restore()
    for step in steps:
        while state.step < step:
            model(torch.ones(3)).sum().backward()
            optimizer.step()
            state.best = float(step)
            state.commit()
        assert state.flush()
    state.close()
    for version, path in by_name(folder / name):
        if version.step not in steps:  # the first step, which is written by itself
            path.unlink()
    return model


def flip_a_bit(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_the_newest_state_of_a_folder_is_what_was_registered(tmp_path: Path) -> None:
    model = train(tmp_path, 2, 5)
    loaded = elastic.load(tmp_path)
    assert loaded.keys() == {"model", "optimizer", "best", "step"}
    assert (loaded["step"], loaded["best"]) == (5, 5.0)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded["model"][name], value)
    assert loaded["optimizer"]["state"][0]["step"] == 5


def test_one_checkpoint_is_read_by_its_path_wherever_it_has_been_copied(tmp_path: Path) -> None:
    train(tmp_path / "run", 2, 5)
    older = by_name(tmp_path / "run")[1].path
    assert elastic.load(str(older))["step"] == 2
    shutil.copy(older, tmp_path / "best.elastic")
    assert elastic.load(tmp_path / "best.elastic")["step"] == 2


def test_damaged_ones_are_skipped_in_a_folder_and_named_if_there_is_no_other(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    train(tmp_path, 2, 5)
    newest, older = (path for _, path in by_name(tmp_path))
    flip_a_bit(newest, 100)
    assert elastic.load(tmp_path)["step"] == 2
    assert f"{newest} is skipped: corrupt" in log.text
    with pytest.raises(
        ValueError, match=rf"the checkpoint {newest} cannot be read: corrupt: the checksum is wrong"
    ):
        elastic.load(newest)
    older.write_bytes(older.read_bytes()[:-1])
    with pytest.raises(
        ValueError,
        match=rf"no checkpoint in .* is whole: {newest.name}: corrupt.*; {older.name}: torn",
    ):
        elastic.load(tmp_path)


def test_a_checkpoint_under_another_s_name_is_damaged(tmp_path: Path) -> None:
    train(tmp_path, 2)
    [(version, path)] = by_name(tmp_path)
    path.rename(path.with_name(path.name.replace(f"s{version.step:09}", "s000000009")))
    with pytest.raises(
        ValueError, match=r"foreign: it is named after \(1, 9\), and holds \(1, 2\)"
    ):
        elastic.load(tmp_path)


def test_where_nothing_is_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*/nowhere"):
        elastic.load(tmp_path / "nowhere")
    (tmp_path / "logs").mkdir()
    with pytest.raises(FileNotFoundError, match=f"there is no checkpoint in {tmp_path}"):
        elastic.load(tmp_path)
    (tmp_path / "notes").write_text("no checkpoint")
    with pytest.raises(ValueError, match="notes cannot be read: foreign"):
        elastic.load(tmp_path / "notes")


def test_of_several_trainings_it_tells_the_names(tmp_path: Path) -> None:
    for name in ("generator", "critic"):
        train(tmp_path, 1, name=name)
    (tmp_path / "logs").mkdir()
    with pytest.raises(
        ValueError,
        match="has no checkpoint itself, but the trainings critic, generator: give the path of one",
    ):
        elastic.load(tmp_path)
    assert elastic.load(tmp_path / "critic")["step"] == 1
    train(tmp_path, 3)
    assert elastic.load(tmp_path)["step"] == 3


@needs_sharded_tensors
@pytest.mark.parametrize(
    ("tree", "error", "words"),
    [
        ({"layout": LAYOUT + 1}, ValueError, "another release's layout"),
        (
            {"rest": {}, "shards": [], "files": [], "stages": [3, 5]},
            RuntimeError,
            "a pipeline of 2 stages",
        ),
        (
            {"rest": {}, "shards": [], "files": [("engine/zero/x", 1, 1)]},
            RuntimeError,
            "DeepSpeed writes by itself",
        ),
    ],
)
def test_what_one_process_cannot_put_together_is_refused(
    tmp_path: Path, tree: dict[str, Any], error: type[Exception], words: str
) -> None:
    write(tmp_path, StateVersion(1, 1), payload_chunks(tree), keep=1)
    with pytest.raises(error, match=words):
        elastic.load(tmp_path)


# --- of a sharded model ---


def train_sharded(folder: Path, *steps: int) -> list[Any]:
    """Trains as `train` does. Returns the whole weights after each of the steps."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    torch.manual_seed(0)
    model = fully_shard(nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    state = elastic.State(
        folder,
        elastic.State.Options(memory=False, keep=9),
        model=model,
        optimizer=optimizer,
        best=9.0,
    )
    state.restore()
    weights = []
    for step in steps:
        while state.step < step:
            model(torch.ones(2, 5)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            state.commit()
        assert state.flush()
        each = model.weight
        assert isinstance(each, DTensor)
        weights.append(each.full_tensor().detach().clone())
    return weights


def load_on_rank_1(folder: Path) -> Any:
    """What one rank reads while the other does not: of the step that was saved before."""
    weights = train_sharded(folder, 2)
    return (
        torch.equal(elastic.load(folder)["model"]["weight"], weights[0])
        if dist.get_rank() == 1
        else None
    )


@needs_fsdp2
@pytest.mark.process
def test_sharded_tensors_are_whole(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    older, newer = run_group(2, train_sharded, tmp_path, 2, 4)[0]
    loaded = elastic.load(tmp_path)
    assert loaded.keys() == {"model", "optimizer", "best", "step"}
    assert (loaded["step"], loaded["best"]) == (4, 9.0)
    assert torch.equal(loaded["model"]["weight"], newer)
    assert loaded["optimizer"]["state"]["weight"]["exp_avg"].shape == (3, 5)
    assert {type(each) for each in loaded["model"].values()} == {torch.Tensor}
    oldest, newest = sorted(tmp_path.glob("*.sharded"))
    copied = shutil.copytree(oldest, tmp_path / "copied")
    assert torch.equal(elastic.load(copied)["model"]["weight"], older)

    shard = next(newest.glob("__1_*"))
    flip_a_bit(shard, 5)
    assert elastic.load(tmp_path)["step"] == 2
    assert f"corrupt: the checksum of {shard.name} is wrong" in log.text
    with pytest.raises(
        ValueError, match=rf"no checkpoint in .* is whole: .*the checksum of {shard.name} is wrong"
    ):
        elastic.load(newest)
    next(oldest.glob("*.elastic")).unlink()
    with pytest.raises(
        ValueError,
        match=rf"{shard.name} is wrong; {oldest.name}/.*: its checkpoint file is missing",
    ):
        elastic.load(tmp_path)
    shard.unlink()
    with pytest.raises(ValueError, match=shard.name):
        elastic.load(newest)


@needs_fsdp2
@pytest.mark.process
def test_a_rank_of_a_group_reads_alone(tmp_path: Path) -> None:
    assert run_group(2, load_on_rank_1, tmp_path) == [None, True]


def read_in_older_releases(state_dict: dict[str, Any], *, storage_reader: Any) -> None:
    del state_dict, storage_reader


def read_in_newer_releases(
    state_dict: dict[str, Any], *, storage_reader: Any, no_dist: bool = False
) -> None:
    del state_dict, storage_reader, no_dist


def test_a_torch_that_would_wait_for_the_group_is_refused_in_one() -> None:
    for grouped in (True, False):
        assert reads_alone(read_in_newer_releases, grouped=grouped) == {"no_dist": True}
    assert reads_alone(read_in_older_releases, grouped=False) == {}
    with pytest.raises(RuntimeError, match="load it in a process without one"):
        reads_alone(read_in_older_releases, grouped=True)


# --- the example of the documentation ---


def test_the_export_of_the_documentation(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
    model = train(tmp_path / "checkpoints", 2)
    [example] = [
        each.text
        for each in blocks(ROOT / "docs" / "use" / "training-library.md")
        if "elastic.load(" in each.text
    ]
    names: dict[str, Any] = {
        "elastic": elastic,
        "torch": torch,
        "folder": tmp_path / "checkpoints",
        "target": tmp_path / "model.safetensors",
    }
    exec(example, names)
    exported = safetensors.load_file(tmp_path / "model.safetensors")
    assert exported.keys() == model.state_dict().keys()
    assert all(torch.equal(exported[name], value) for name, value in model.state_dict().items())
