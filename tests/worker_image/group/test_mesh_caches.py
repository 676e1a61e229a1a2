import gc
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.group import in_process
from elastic_pytorch.group.mesh_caches import OWNERS, Cache, caches, forget_meshes, refuse_stale
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

pytestmark = pytest.mark.torch


@pytest.fixture
def new_mesh() -> Iterator[Callable[[], DeviceMesh]]:
    """Makes the mesh of a new group of one process, which is equal to that of the group before."""

    def make() -> DeviceMesh:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        return init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "tp"))

    yield make
    if dist.is_initialized():
        dist.destroy_process_group()
    forget_meshes()


def test_mesh_of_a_later_group_is_not_taken_for_an_earlier_one(
    new_mesh: Callable[[], DeviceMesh],
) -> None:
    earlier = new_mesh()
    refuse_stale([earlier])
    later = new_mesh()
    assert later == earlier
    with pytest.raises(
        RuntimeError, match=r"takes .* for one of an earlier group: leave out in_process"
    ):
        refuse_stale([later])
    forget_meshes()
    refuse_stale([later, later["tp"]])


def test_group_that_in_process_leaves_without_a_sharded_state_is_forgotten(
    new_mesh: Callable[[], DeviceMesh],
) -> None:
    """Its peers may be lost while it makes its model, before there is a ShardedState."""
    refuse_stale([new_mesh()])
    in_process._leave_group(broken=False)
    assert not dist.is_initialized()
    refuse_stale([new_mesh()])


def test_mesh_whose_process_has_another_place_in_this_group_is_refused(
    new_mesh: Callable[[], DeviceMesh],
) -> None:
    mesh: Any = new_mesh()
    refuse_stale([mesh])

    class Moved(DeviceMesh):
        def get_coordinate(self) -> list[int]:
            return [0, 1]

    mesh.__class__ = Moved
    with pytest.raises(RuntimeError, match="of an earlier group"):
        refuse_stale([mesh])


def test_caches_are_found_without_the_garbage_collector(new_mesh: Callable[[], DeviceMesh]) -> None:
    refuse_stale([new_mesh()])
    gc.unfreeze()
    known = {
        each
        for each in gc.get_objects()
        if type(each) is Cache and str(each.__module__).startswith(OWNERS)
    }
    gc.freeze()  # as these tests, and warm workers, have it
    assert known
    assert not [each.__wrapped__ for each in known.difference(caches())]


def test_what_has_nothing_to_do_with_meshes_stays_cached() -> None:
    calls = []

    @lru_cache
    def computed() -> torch.Tensor:
        calls.append(1)
        return torch.zeros(1)

    computed()
    forget_meshes()
    computed()
    assert len(calls) == 1
