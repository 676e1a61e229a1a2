"""The environment variables of a group and its units: pods that hold one replica of the model."""

import os
from collections.abc import Mapping

UNIT_REPLICAS = "ELASTIC_PYTORCH_UNIT_REPLICAS"  # set by the operator: the pods of a unit
UNIT, UNITS, UNIT_RANK = (
    "ELASTIC_PYTORCH_UNIT",
    "ELASTIC_PYTORCH_UNITS",
    "ELASTIC_PYTORCH_UNIT_RANK",
)
# From torchrun and the agent. LOCAL_RANK and LOCAL_WORLD_SIZE are the pod's, and known from the
# start.
GROUP_VARIABLES = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        UNIT,
        UNITS,
        UNIT_RANK,
    }
)


def group_environment(
    rank: int, world_size: int, *, store: tuple[str, int], local_world_size: int, unit_replicas: int
) -> dict[str, str]:
    """A pod's workers are all of one role."""
    address, port = store
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": str(rank // local_world_size),
        "WORLD_SIZE": str(world_size),
        "ROLE_WORLD_SIZE": str(world_size),
        "GROUP_WORLD_SIZE": str(world_size // local_world_size),
        **unit_variables(rank, world_size, unit_replicas * local_world_size),
    }


def unit_variables(rank: int, world_size: int, unit_processes: int) -> dict[str, str]:
    """The variables of a process's unit, which consists of consecutive ranks."""
    unit, unit_rank = divmod(rank, unit_processes)
    return {UNIT: str(unit), UNITS: str(world_size // unit_processes), UNIT_RANK: str(unit_rank)}


def unit_processes(environ: Mapping[str, str] = os.environ) -> int:
    """The number of processes of a unit; without the operator, of one pod or node."""
    return int(environ.get(UNIT_REPLICAS) or 1) * int(environ.get("LOCAL_WORLD_SIZE") or 1)


def unit_number(environ: Mapping[str, str] = os.environ) -> int:
    return int(environ.get("RANK") or 0) // unit_processes(environ)
