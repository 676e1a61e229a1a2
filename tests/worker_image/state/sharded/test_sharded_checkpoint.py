"""Checkpoints of FSDP2's state, written by a real group and read by one of another size."""

from tests.worker_image.cpu_fsdp2 import DTensor, FusedAdamW, fully_shard

# isort: split

import resource
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.group.rank_group import cpu_group
from elastic_pytorch.state.sharded import shared_folder
from elastic_pytorch.state.sharded.sharded_checkpoint import (
    load_sharded,
    load_state,
    save_sharded,
    states_of,
    template_of,
)
from elastic_pytorch.state.values.registered import put_back
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_folder import by_name
from elastic_pytorch.storage.checkpoint_format import SHARDED
from torch import nn
from torch.optim.lr_scheduler import StepLR

from tests.torch_features import FSDP2_AVERAGES
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def build() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = FusedAdamW(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "scheduler": StepLR(optimizer, 2)}


def train(registered: dict[str, Any], steps: int) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        inputs = torch.randn(4, 5, generator=generator)
        registered["model"](inputs).square().mean().backward()
        registered["optimizer"].step()
        registered["optimizer"].zero_grad()
        registered["scheduler"].step()


def whole(registered: dict[str, Any]) -> dict[str, Any]:
    """The numbers of the state, as one process has them."""

    def numbers(value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return {
                inner: each
                for key, part in value.items()
                for inner, each in numbers(part, f"{name}.{key}").items()
            }
        if isinstance(value, list):
            return numbers(dict(enumerate(value)), name)
        if isinstance(value, DTensor):
            value = value.full_tensor()
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().clone()
        return {name: value} if isinstance(value, torch.Tensor | int | float) else {}

    return numbers(states_of(registered), "")


def save_steps(folder: Path, steps: list[int], generation: int) -> dict[str, Any]:
    registered = build()
    done = 0
    for step in steps:
        train(registered, step - done)
        done = step
        save_sharded(
            folder,
            StateVersion(generation, step),
            {"objects": states_of(registered), "best": (1.5, "x")},
            keep=2,
            group=cpu_group(),
        )
    return whole(registered)


def load_and_go_on(
    folder: Path, further_steps: int
) -> tuple[StateVersion, Any, dict[str, Any], dict[str, Any]] | None:
    registered = build()
    found = load_sharded(folder, partial(template_of, registered), group=cpu_group())
    if found is None:
        assert not registered["optimizer"].state, (
            "where there is nothing to load, the optimizer is not touched"
        )
        return None
    version, tree = found
    put_back(registered, tree["objects"], "the checkpoint", load=partial(load_state, registered))
    restored = whole(registered)
    train(registered, further_steps)
    return version, tree["best"], restored, whole(registered)


def fail_to_save(folder: Path, generation: int, *, full_disk_of_rank: int = -1) -> str:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == full_disk_of_rank:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        save_steps(folder, [9], generation)
    except (OSError, checkpoint_folder.Superseded) as error:
        return type(error).__name__
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return "saved"


def fail_to_save_on_one_rank(folder: Path) -> list[str]:
    return [fail_to_save(folder, 1, full_disk_of_rank=rank) for rank in (0, 1)]


class NumbersEngine:
    """Writes a file for each rank, and reads them all, whatever the size of the group."""

    def __init__(self, number: int = 0) -> None:
        self.number, self.read = number, list[str]()

    def save(self, folder: Path) -> None:
        (folder / "inner").mkdir(parents=True, exist_ok=True)
        (folder / "inner" / f"rank-{dist.get_rank()}").write_text(f"{self.number}")
        dist.barrier(group=cpu_group())

    def load(self, folder: Path) -> None:
        self.read = [path.read_text() for path in sorted((folder / "inner").iterdir())]


def save_engine(folder: Path, steps: list[int]) -> None:
    for step in steps:
        save_sharded(
            folder,
            StateVersion(1, step),
            {"best": 1.5},
            keep=2,
            group=cpu_group(),
            engine=NumbersEngine(step),
        )


def load_engine(folder: Path) -> tuple[StateVersion, Any, list[str]]:
    engine = NumbersEngine()
    found = load_sharded(folder, dict, group=cpu_group(), engine=engine)
    return found[0], found[1]["best"], engine.read


@pytest.fixture(scope="module")
def saved_at_2_and_3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two checkpoints of two ranks, which tests copy."""
    folder = tmp_path_factory.mktemp("saved")
    run_group(2, save_steps, folder, [2, 3], 1)
    return folder


@pytest.mark.process
def test_what_an_engine_writes_by_itself_is_a_part_of_the_checkpoint_and_checked_with_it(
    tmp_path: Path,
) -> None:
    run_group(3, save_engine, tmp_path, [4, 8])
    assert run_group(2, load_engine, tmp_path) == [(StateVersion(1, 8), 1.5, ["8"] * 3)] * 2
    (tmp_path / "checkpoint-g000001-s000000008.sharded" / "engine" / "inner" / "rank-2").write_text(
        "9"
    )
    assert run_group(1, load_engine, tmp_path) == [(StateVersion(1, 4), 1.5, ["4"] * 3)]


@pytest.mark.process
@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=pytest.mark.gpu)])
def test_what_one_group_saves_a_group_of_another_size_goes_on_with(
    tmp_path: Path, backend: str
) -> None:
    saved, *same = run_group(3, save_steps, tmp_path, [1, 2, 4], 1, backend=backend)
    for other in same:
        torch.testing.assert_close(other, saved, rtol=0, atol=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-g000001-s000000002.sharded",
        "checkpoint-g000001-s000000004.sharded",
    ]
    assert next(version for version, _ in by_name(tmp_path, SHARDED)) == (1, 4)
    further = []
    for world_size in (2, 4):
        for outcome in run_group(world_size, load_and_go_on, tmp_path, 3, backend=backend):
            version, best, restored, after = outcome
            assert (version, best) == ((1, 4), (1.5, "x"))
            torch.testing.assert_close(restored, saved, rtol=0, atol=0)
            further.append(after)
    # Where gradients are sums, groups of different sizes train differently.
    for after in further if FSDP2_AVERAGES else ():
        # Sums of another order, in single precision.
        torch.testing.assert_close(after, further[0], rtol=1e-3, atol=1e-4)


@pytest.mark.process
def test_what_is_not_whole_is_skipped_and_a_cut_off_group_writes_nothing(
    saved_at_2_and_3: Path, tmp_path: Path
) -> None:
    shutil.copytree(saved_at_2_and_3, tmp_path, dirs_exist_ok=True)
    newest = tmp_path / "checkpoint-g000001-s000000003.sharded"
    shard = newest / "__1_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    left_behind = tmp_path / ".partial-sharded-g000001-s000000004-0123456789abcdef"
    left_behind.mkdir()
    (tmp_path / "checkpoint-g000001-s000000009.sharded").mkdir()
    for outcome in run_group(2, load_and_go_on, tmp_path, 0):
        assert outcome[0] == (1, 2)

    checkpoint_folder.claim(tmp_path, 2)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert run_group(2, fail_to_save, tmp_path, 1) == ["Superseded"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    run_group(2, save_steps, tmp_path, [5], 2)
    assert not left_behind.exists()
    assert next(version for version, _ in by_name(tmp_path, SHARDED)) == (2, 5)


def load_where_rank_1_sees_it_late(folder: Path, other: Path, seconds: float) -> Any:
    """Its own view of the folder, which shows the checkpoint later, or not before this gives up."""
    shared_folder.SEEN_SECONDS, shared_folder.POLL_SECONDS = (
        (60.0, 0.05) if seconds else (0.2, 0.05)
    )
    if dist.get_rank() == 0:
        other = folder
    elif seconds:
        threading.Timer(seconds, lambda: other.symlink_to(folder)).start()
    try:
        found = load_and_go_on(other, 0)
    except OSError as error:
        return str(error)
    return None if found is None else found[0]


@pytest.mark.process
def test_what_one_rank_sees_later_is_waited_for_and_never_taken_for_damaged(
    saved_at_2_and_3: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(saved_at_2_and_3, tmp_path / "folder")
    assert run_group(2, load_where_rank_1_sees_it_late, folder, tmp_path / "late", 1.0) == [
        (1, 3),
        (1, 3),
    ]
    told = run_group(2, load_where_rank_1_sees_it_late, folder, tmp_path / "never", 0.0)
    assert "training must not go on from an older one" in told[0]
    assert "rank 0 sees it whole, and this rank does not" in told[1]


@pytest.mark.process
def test_shard_that_is_gone_for_all_is_damage(saved_at_2_and_3: Path, tmp_path: Path) -> None:
    shutil.copytree(saved_at_2_and_3, tmp_path, dirs_exist_ok=True)
    (tmp_path / "checkpoint-g000001-s000000003.sharded" / "__1_0.distcp").unlink()
    for outcome in run_group(2, load_and_go_on, tmp_path, 0):
        assert outcome[0] == (1, 2)


@pytest.mark.process
def test_a_folder_that_cannot_be_written_is_told_to_all_and_an_empty_one_is_no_checkpoint(
    tmp_path: Path,
) -> None:
    assert run_group(2, load_and_go_on, tmp_path / "missing", 0) == [None, None]
    file = tmp_path / "file"
    file.touch()
    assert set(run_group(2, fail_to_save, file / "folder", 1)) <= {"OSError", "NotADirectoryError"}
    assert run_group(2, fail_to_save_on_one_rank, tmp_path / "full") == [["OSError", "OSError"]] * 2
    assert not list((tmp_path / "full").iterdir())
