"""A State without an agent: it goes when the script lets go of it, and who of a pod keeps what it holds."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.checkpoint_file import load_newest
from elastic_pytorch.local_server import LOCAL_SOCKET
from elastic_pytorch.stamp import Stamp
from elastic_pytorch.state import writes_for_its_pod


@pytest.fixture(autouse=True)
def without_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_SOCKET, raising=False)


def train(folder: Path) -> "tuple[weakref.ref[object], weakref.ref[object]]":
    model = torch.nn.Linear(2, 2)
    state = elastic.State(folder, model=model)
    state.restore()
    state.commit()
    assert state.flush()
    return weakref.ref(state), weakref.ref(model)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_nothing_of_it_stays_behind(tmp_path: Path) -> None:
    train(tmp_path)
    gc.collect()
    before = descriptors()
    for _ in range(3):
        state, model = train(tmp_path)
        gc.collect()
        assert (state(), model()) == (None, None)
    assert descriptors() == before


def test_last_commit_is_brought_to_the_disk_at_the_end(tmp_path: Path) -> None:
    code = f"""if True:
        import elastic_pytorch as elastic, torch

        def main():
            state = elastic.State({str(tmp_path)!r}, flush_seconds=1000, model=torch.nn.Linear(2, 2))
            state.restore()
            for _ in range(3):
                state.commit()

        main()  # and nobody holds the state any more
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    loaded = load_newest(tmp_path, Stamp(0, 0))
    assert loaded is not None
    assert loaded.stamp.step == 3


@pytest.mark.parametrize(
    ("variables", "writes"),
    [
        ({}, True),
        ({"RANK": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, True),
        ({"RANK": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, False),
        ({"RANK": "5", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, False),  # --virtual-local-rank
    ],
)
def test_one_process_of_a_pod_keeps_the_state(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], writes: bool) -> None:
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert writes_for_its_pod() is writes


class Watchful(torch.optim.AdamW):
    """Tells what it held when a state was loaded; may lack the memory for that."""

    held = -1
    memory = True

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.held = len(self.state)
        if not self.memory:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB.")
        super().load_state_dict(state_dict)


def test_optimizer_gives_its_memory_back_before_it_takes_that_of_the_state(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = Watchful(model.parameters())
    state = elastic.State(tmp_path, model=model, optimizer=optimizer)
    state.restore()
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    state.commit()
    kept = [{name: value.clone() for name, value in each.items()} for each in optimizer.state.values()]
    optimizer.zero_grad()
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    state.restore()
    assert optimizer.held == 0
    restored = list(optimizer.state.values())
    assert [len(each) for each in restored] == [3, 3]
    assert all(
        torch.equal(value, each[name]) for each, before in zip(restored, kept, strict=True) for name, value in before.items()
    )
    optimizer.memory = False
    with pytest.raises(torch.cuda.OutOfMemoryError):
        state.restore()
