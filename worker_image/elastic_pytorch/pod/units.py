"""Units: the pods of which the operator makes and removes all together, since one replica of the model spans them."""

import os
from collections.abc import Mapping

UNIT_REPLICAS = "ELASTIC_PYTORCH_UNIT_REPLICAS"  # set by the operator: how many pods a unit has
UNIT, UNITS, UNIT_RANK = "ELASTIC_PYTORCH_UNIT", "ELASTIC_PYTORCH_UNITS", "ELASTIC_PYTORCH_UNIT_RANK"
UNIT_VARIABLES = (UNIT, UNITS, UNIT_RANK)


def unit_variables(rank: int, world_size: int, unit_processes: int) -> dict[str, str]:
    """Returns the variables by which a process knows its unit. Consecutive ranks make a unit.

    Args:
        rank: of the process in its group.
        world_size: of the group.
        unit_processes: how many processes a unit has.
    """
    unit, unit_rank = divmod(rank, unit_processes)
    return {UNIT: str(unit), UNITS: str(world_size // unit_processes), UNIT_RANK: str(unit_rank)}


def unit_processes(environ: Mapping[str, str] = os.environ) -> int:
    """Returns how many processes a unit of this job has; without the operator, those of one pod or node."""
    return int(environ.get(UNIT_REPLICAS) or 1) * int(environ.get("LOCAL_WORLD_SIZE") or 1)


def unit_number(environ: Mapping[str, str] = os.environ) -> int:
    """Returns the number of this process's unit in its group."""
    return int(environ.get("RANK") or 0) // unit_processes(environ)
