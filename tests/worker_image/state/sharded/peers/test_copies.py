"""Copies of several states at once, each of which arrives where it belongs."""

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state.sharded.peers.copies import PeerCopies, tag_of
from elastic_pytorch.state_format.state_version import StateVersion

from tests.worker_image.scripts.snapshots import read_newest
from tests.worker_image.torch_group import run_group

pytestmark = [pytest.mark.process, pytest.mark.torch]

STEPS = 50


def copy_two_states() -> None:
    """Two ranks copy two states of one size to each other, begun in another order."""
    rank = dist.get_rank()
    own, copies = ([Snapshot.create(name, 2) for _ in range(2)] for name in ("own", "copies"))
    both = [
        PeerCopies(own[number], copies[number], 1 - rank, 1 - rank, None, tag_of(1000 + number))
        for number in range(2)
    ]
    for step in range(1, STEPS):
        version = StateVersion(1, step)
        for number in sorted(range(2), reverse=rank == 1):
            own[number].write(
                version, {"of": torch.full((1000,), 100 * number + step), "rank": rank}
            )
            both[number].begin(version)
        for number, each in enumerate(both):
            each.wait()
            _, arrived = read_newest(copies[number])
            assert (arrived["of"] == 100 * number + step).all()
            assert arrived["rank"] == 1 - rank


def test_states_that_are_copied_at_the_same_time_are_not_mixed() -> None:
    run_group(2, copy_two_states)
