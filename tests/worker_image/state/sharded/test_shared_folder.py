"""A folder that cannot hold checkpoints is told before the training, and unsaved work after it."""

from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from elastic_pytorch.pod.messages import CHANGE, LOCAL_SOCKET
from elastic_pytorch.pod.planned_stop import script_end
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state.sharded import last_save, shared_folder
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from torch import nn

from tests.worker_image.torch_group import run_group

pytestmark = [pytest.mark.torch, pytest.mark.process]


def outcome_of_restore(folders: list[Path]) -> str:
    shared_folder.SEEN_SECONDS, shared_folder.POLL_SECONDS = 0.2, 0.05
    try:
        ShardedState(
            folders[dist.get_rank()],
            ShardedState.Options(every=9, memory=False),
            model=fully_shard(nn.Linear(5, 3)),
        ).restore()
    except OSError as error:
        return str(error)
    return "restored"


def test_a_folder_of_each_pod_s_own_is_refused(tmp_path: Path) -> None:
    own = [tmp_path / "0", tmp_path / "1"]
    for message in run_group(2, outcome_of_restore, own):
        assert (
            "is not one folder for all ranks: rank 1 does not see what rank 0 has written"
            in message
        )
        assert "ReadWriteMany" in message
    assert not list(own[0].iterdir())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    told = run_group(2, outcome_of_restore, [file / "folder"] * 2)
    assert f"rank 0 cannot write to {file / 'folder'}, so no checkpoint could be saved" in told[0]
    assert told[1].endswith("on rank 0")


def test_a_folder_that_all_see_is_taken_and_left_clean(tmp_path: Path) -> None:
    assert run_group(2, outcome_of_restore, [tmp_path] * 2) == ["restored"] * 2
    assert not [path for path in tmp_path.iterdir() if "seen" in path.name]


def train(folder: Path, socket: str, spoilt_for: float, limit: float) -> str:
    """Two steps; the group stops at the second, or, with a socket, when it is told to."""
    last_save.STOP_SECONDS = last_save.LAST_FLUSH_SECONDS = limit
    last_save.RETRY_SECONDS = 0.05
    if socket:
        os.environ |= {
            LOCAL_SOCKET: socket,
            "RANK": str(dist.get_rank()),
            "LOCAL_WORLD_SIZE": str(dist.get_world_size()),
        }
        # As where the agent runs the script: a stop ends it, instead of waiting for the agent.
        script_end.orderly = True
    state = ShardedState(
        folder / "checkpoints",
        ShardedState.Options(every=99, total_steps=None if socket else 2),
        model=fully_shard(nn.Linear(5, 3)),
    )
    state.restore()
    state.commit()
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "checkpoints").rename(folder / "away")
        (folder / "checkpoints").touch()
        if spoilt_for:
            threading.Timer(spoilt_for, (folder / "checkpoints").unlink).start()
    dist.barrier()
    try:
        while state.step < (10**9 if socket else 2):
            state.commit()
    except OSError as error:
        return str(error)
    except BaseException as stop:
        return type(stop).__name__
    return f"saved {state._saved.step}"


def test_a_last_step_that_cannot_be_saved_at_first_is_saved_a_little_later(tmp_path: Path) -> None:
    assert run_group(2, train, tmp_path, "", 0.5, 60.0) == ["saved 2"] * 2


def test_a_last_step_that_cannot_be_saved_fails_the_job(tmp_path: Path) -> None:
    for message in run_group(2, train, tmp_path, "", 0.0, 0.3):
        assert message.startswith(f"step 2 cannot be saved to {tmp_path / 'checkpoints'}")
        assert message.endswith("The last checkpoint is of step 0")


@pytest.fixture
def agent() -> Iterator[str]:
    """An agent that has told all workers to stop, as for `suspend`: no pod takes shards."""
    server = PodServer()
    socket = server.prepare()
    server.start()
    server.broadcast({"kind": CHANGE, "round": 2, "orderly": True, "leaves": True})
    yield socket
    server.close()


def test_a_planned_stop_whose_step_cannot_be_saved_fails_the_job(
    tmp_path: Path, agent: str
) -> None:
    for message in run_group(2, train, tmp_path, agent, 0.0, 0.3):
        assert "cannot be saved" in message


def test_a_planned_stop_is_taken_once_its_step_is_saved(tmp_path: Path, agent: str) -> None:
    assert run_group(2, train, tmp_path, agent, 0.5, 60.0) == ["PlannedStop"] * 2
    assert list((tmp_path / "checkpoints").glob("*.sharded"))
