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
    worker: GroupWorker, *, store: tuple[str, int], local_world_size: int, unit_replicas: int
) -> dict[str, str]:
    """Returns the variables that depend on the group.

    Args:
        worker: the process.
        store: the address and the port of the group's store.
        local_world_size: how many processes a pod has.
        unit_replicas: how many pods a unit has.
    """
    address, port = store
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": str(worker.global_rank),
        "ROLE_RANK": str(worker.role_rank),
        "GROUP_RANK": str(worker.global_rank // local_world_size),
        "WORLD_SIZE": str(worker.world_size),
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "GROUP_WORLD_SIZE": str(worker.world_size // local_world_size),
        **unit_variables(worker.global_rank, worker.world_size, unit_replicas * local_world_size),
    }
