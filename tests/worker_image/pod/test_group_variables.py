import pytest
from elastic_pytorch.pod.group_variables import (
    GROUP_VARIABLES,
    group_environment,
    unit_number,
    unit_processes,
    unit_variables,
)


@pytest.mark.parametrize(
    ("rank", "world_size", "processes", "told"),
    [
        (0, 1, 1, ("0", "1", "0")),
        (3, 4, 1, ("3", "4", "0")),
        (3, 6, 2, ("1", "3", "1")),
        (11, 12, 4, ("2", "3", "3")),
        (7, 8, 8, ("0", "1", "7")),
    ],
    ids=["alone", "units of one", "units of two", "last", "one unit"],
)
def test_a_process_is_told_of_its_unit(
    rank: int, world_size: int, processes: int, told: tuple[str, ...]
) -> None:
    names = ("ELASTIC_PYTORCH_UNIT", "ELASTIC_PYTORCH_UNITS", "ELASTIC_PYTORCH_UNIT_RANK")
    assert unit_variables(rank, world_size, processes) == dict(zip(names, told, strict=True))


@pytest.mark.parametrize(
    ("environ", "processes", "number"),
    [
        ({}, 1, 0),
        ({"RANK": "5"}, 1, 5),
        ({"RANK": "5", "LOCAL_WORLD_SIZE": "2"}, 2, 2),
        ({"RANK": "5", "LOCAL_WORLD_SIZE": "2", "ELASTIC_PYTORCH_UNIT_REPLICAS": "2"}, 4, 1),
        ({"RANK": "5", "LOCAL_WORLD_SIZE": "2", "ELASTIC_PYTORCH_UNIT_REPLICAS": ""}, 2, 2),
    ],
    ids=["no group", "one process a pod", "two", "two pods of two", "empty"],
)
def test_a_process_knows_its_unit(environ: dict[str, str], processes: int, number: int) -> None:
    assert (unit_processes(environ), unit_number(environ)) == (processes, number)


def test_all_that_depends_on_the_group_is_given() -> None:
    given = group_environment(7, 12, store=("10.0.0.1", 29500), local_world_size=2, unit_replicas=3)
    assert given == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "RANK": "7",
        "ROLE_RANK": "7",
        "GROUP_RANK": "3",
        "WORLD_SIZE": "12",
        "ROLE_WORLD_SIZE": "12",
        "GROUP_WORLD_SIZE": "6",
        "ELASTIC_PYTORCH_UNIT": "1",
        "ELASTIC_PYTORCH_UNITS": "2",
        "ELASTIC_PYTORCH_UNIT_RANK": "1",
    }
    assert given.keys() == GROUP_VARIABLES, "what a preparing process waits for"
