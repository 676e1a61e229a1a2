"""What is kept of a GPU's tensors is what was committed, bit by bit, however far it is behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from torch import nn

from tests.worker_image.scripts.snapshots import read_newest

pytestmark = [pytest.mark.gpu, pytest.mark.process, pytest.mark.torch]

WIDTH = 1024
OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])


@pytest.fixture(autouse=True)
def without_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_SOCKET, raising=False)


class Training:
    """A model of megabytes, in mixed precision, with dropout; it never waits for the GPU."""

    def __init__(self, folder: Path, **options: Any) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH)
        ).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cuda")
        registered = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        self.state = elastic.State(
            folder,
            elastic.State.Options(**{"every": 1, "flush_seconds": 1e9, **options}),
            **registered,
        )
        self.state.restore()

    def step(self) -> None:
        busy = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, generator=self.other)
        for _ in range(20):  # some milliseconds for the GPU, microseconds for the CPU
            busy @ busy
        with torch.autocast("cuda", torch.float16):
            loss = self.model(torch.ones(32, WIDTH, device="cuda")).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    other = torch.Generator("cuda") if torch.cuda.is_available() else None

    def tensors(self) -> dict[str, torch.Tensor]:
        """Copies of what is to be kept, made in the queue of the GPU."""
        found = {f"model.{name}": each.clone() for name, each in self.model.state_dict().items()}
        for number, parts in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{number}.{name}": each.clone() for name, each in parts.items()}
        return found

    @property
    def snapshot(self) -> Snapshot:
        assert self.state._commits.snapshot is not None
        return self.state._commits.snapshot


def kept(tree: Any) -> dict[str, torch.Tensor]:
    found = {f"model.{name}": each for name, each in tree["objects"]["model"].items()}
    for number, parts in tree["objects"]["optimizer"]["state"].items():
        found |= {f"optimizer.{number}.{name}": each for name, each in parts.items()}
    return found


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    different = [
        name for name, each in wanted.items() if not torch.equal(each.cpu(), found[name].cpu())
    ]
    assert not different


@pytest.fixture(params=[False, True], ids=["in turn", "overlap"])
def training(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Training]:
    made = Training(tmp_path, overlap=request.param)
    yield made
    made.state.close()


def test_what_is_kept_is_what_was_committed(training: Training) -> None:
    for _ in range(6):
        training.step()
        wanted = training.tensors()
        training.state.commit()
        training.step()  # at once: the copies have hardly begun
        training.state._commits.settle(wait=True)
        assert_same(kept(read_newest(training.snapshot)[1]), wanted)
        training.state.commit()


def test_slots_are_locked_in_memory(training: Training) -> None:
    for _ in range(4):
        training.step()
        training.state.commit()
    mappings = [each for each in training.snapshot._mappings if each is not None]
    assert len(mappings) == 2
    assert all(
        tensor.is_pinned() for mapping in mappings for tensor in mapping.tensors if tensor.numel()
    )


def test_copies_beside_the_training_are_for_what_optimizers_own(
    training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[int] = []
    lane = training.state._commits._copier._lane
    beside = lane.copy_beside
    lane.copy_beside = lambda pairs: (
        begun.append(len(pairs)),
        beside(pairs),
    )[1]
    for _ in range(4):
        training.step()
        training.state.commit()
    weights = len(list(training.model.parameters()))
    assert begun == ([3 * weights] * 4 if training.state._commits._copier._optimizers else [])
    assert not caplog.records


def test_a_commit_into_which_something_else_has_written_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(tmp_path, overlap=True)
    for _ in range(2):
        training.step()
        training.state.commit()
    training.state._commits.settle(wait=True)
    training.step()
    wanted = training.tensors()
    training.state.commit()
    training.state._commits.settle(wait=True)
    training.step()
    training.state.commit()
    with torch.no_grad():
        training.model[0].weight.add_(1)
    training.step()
    training.state._commits.settle(wait=True)
    assert "was changed by something else" in caplog.text
    assert training.snapshot.newest() == (training.state._version.generation, 3)
    assert_same(kept(read_newest(training.snapshot)[1]), wanted)
    training.state.close()


@OVERLAP
def test_another_training_goes_on_bit_by_bit_with_the_random_numbers_of_the_gpu(
    tmp_path: Path, overlap: bool
) -> None:
    first = Training(tmp_path, overlap=overlap)
    for _ in range(5):
        first.step()
        first.state.commit()
    first.state.close()
    for _ in range(5):
        first.step()
    torch.manual_seed(99)
    torch.rand(7, device="cuda")
    second = Training(tmp_path, overlap=overlap)
    assert second.state.step == 5
    for _ in range(5):
        second.step()
        second.state.commit()
    assert_same(second.tensors(), first.tensors())
    assert second.scaler.state_dict() == first.scaler.state_dict()
    second.state.close()


def test_commits_stay_within_their_budget_although_the_gpu_is_steps_behind(tmp_path: Path) -> None:
    training = Training(tmp_path, every=None)
    for _ in range(60):
        training.step()
        training.state.commit()
    assert len(training.state._interval._commits) >= 3
    assert training.state._interval.steps > 1, (
        "a commit of this state takes more than a hundredth of such a step"
    )
    training.state.close()
