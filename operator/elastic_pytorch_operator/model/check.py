"""A check of nodes: what an agent is asked to measure, and what it has measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What one agent is asked to measure, alone or together with others.

    Attributes:
        number: of the check; grows with each check of a job.
        first_rank: the rank of the pod's first process in the check's group.
        world_size: how many processes the check's group has.
        store_address: where rank 0 serves the group's c10d store.
        store_port: its port.
        seconds: how long the check may take.
    """

    number: int
    first_rank: int
    world_size: int
    store_address: str
    store_port: int
    seconds: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What an agent has measured in its last check.

    Attributes:
        number: of the check; 0: it has made none yet.
        matmul_seconds: of its slowest process's matrix products; None: not measured.
        all_reduce_seconds: of its slowest process's all-reduces with the group; None: not measured, as by a process without others.
        error: what failed first; empty: nothing.
    """

    number: int = 0
    matmul_seconds: float | None = None
    all_reduce_seconds: float | None = None
    error: str = ""


NO_CHECK = CheckReport()  # of an agent that has made none
