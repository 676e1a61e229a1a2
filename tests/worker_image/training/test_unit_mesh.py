"""The mesh of a group of units, and what is no such mesh."""

import os
from collections.abc import Sequence

import elastic_pytorch as elastic
import pytest
from elastic_pytorch.training.unit_mesh import mesh_shape

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("world_size", "unit", "names", "sizes", "shape"),
    [
        (6, 2, ("tp",), None, (3, 2)),
        (6, 2, ["tp"], [2], (3, 2)),
        (2, 2, ("tp",), (2,), (1, 2)),
        (8, 4, ("pp", "tp"), (2, 2), (2, 2, 2)),
        (3, 1, ("tp",), None, (3, 1)),
        (8, 4, ("shard", "tp"), (4, 1), (2, 4, 1)),
    ],
)
def test_units_are_the_first_dimension(
    world_size: int,
    unit: int,
    names: Sequence[str],
    sizes: Sequence[int] | None,
    shape: tuple[int, ...],
) -> None:
    assert mesh_shape(world_size, unit, names, sizes) == shape


@pytest.mark.parametrize(
    ("world_size", "unit", "names", "sizes", "words"),
    [
        (6, 2, "tp", None, r'as in \("tp",\), not \'tp\''),
        (6, 2, (), None, "a sequence of one name at least"),
        (6, 2, ("replicate",), None, "is the dimension over the units"),
        (8, 4, ("tp", "tp"), (2, 2), "each is there once"),
        (8, 4, ("pp", "tp"), None, "give the sizes of pp, tp"),
        (8, 4, ("pp", "tp"), (4,), "each of pp, tp has a size"),
        (8, 4, ("pp", "tp"), (-2, -2), "a size of at least 1"),
        (8, 4, ("pp", "tp"), (2, 3), "2 x 3 = 6, and a unit has 4 processes"),
        (8, 4, ("tp",), (2,), "sizes are 2 = 2, and a unit has 4 processes"),
    ],
)
def test_sizes_that_are_no_unit_are_named(
    world_size: int, unit: int, names: Sequence[str], sizes: Sequence[int] | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        mesh_shape(world_size, unit, names, sizes)


def test_a_group_of_a_part_of_a_unit_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match="the group has 7 processes, which are no whole units of 2"
    ):
        mesh_shape(7, 2, ("tp",), None)


def test_a_mesh_needs_a_group() -> None:
    with pytest.raises(RuntimeError, match="call init_process_group first"):
        elastic.unit_mesh(("tp",))


def meshes() -> tuple[list[list[int]], tuple[str, ...] | None, list[list[int]], str]:
    """In a job with units of two pods, and without one."""
    alone = elastic.unit_mesh(("pp", "tp"), (2, 2)).mesh.flatten(1).tolist()
    os.environ |= {"ELASTIC_PYTORCH_JOB_UID": "uid", "ELASTIC_PYTORCH_UNIT_REPLICAS": "2"}
    mesh = elastic.unit_mesh(("tp",))
    try:
        elastic.unit_mesh(("tp",), (4,))
    except ValueError as error:
        return mesh.mesh.tolist(), mesh.mesh_dim_names, alone, str(error)
    return mesh.mesh.tolist(), mesh.mesh_dim_names, alone, ""


@pytest.mark.process
def test_consecutive_ranks_make_a_unit() -> None:
    for ranks, names, alone, refusal in run_group(4, meshes):
        assert ranks == [[0, 1], [2, 3]]
        assert names == ("replicate", "tp")
        assert alone == [[0, 1, 2, 3]]
        assert "a unit has 2 processes: spec.unitReplicas" in refusal
