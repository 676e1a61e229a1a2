"""The variables that depend on the group, for a process that goes on in another one: those that torchrun and the agent give at a start."""

from typing import Protocol

from elastic_pytorch.pod.units import unit_variables


class GroupWorker(Protocol):
    """A process of the pod, as torch's agent knows it."""

    global_rank: int
    role_rank: int
    world_size: int
    role_world_size: int


def group_environment(
    worker: GroupWorker, *, group_rank: int, group_world_size: int, store: tuple[str, int], unit_replicas: int
) -> dict[str, str]:
    """Returns the variables that depend on the group.

    Args:
        worker: the process.
        group_rank: of its pod.
        group_world_size: how many pods the group has.
        store: the address and the port of the group's store.
        unit_replicas: how many pods a unit has.
    """
    address, port = store
    unit_processes = unit_replicas * worker.world_size // group_world_size
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": str(worker.global_rank),
        "ROLE_RANK": str(worker.role_rank),
        "GROUP_RANK": str(group_rank),
        "WORLD_SIZE": str(worker.world_size),
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "GROUP_WORLD_SIZE": str(group_world_size),
        **unit_variables(worker.global_rank, worker.world_size, unit_processes),
    }
