"""What a batch script asks Slurm for: workers, and the resources of each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_client.migration.job_metadata import set_fields
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks

GPU = "nvidia.com/gpu"
UNITS = {"": "Mi", "K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}
MEMORY = re.compile(r"(\d+)([KMGT]?)B?\Z", re.IGNORECASE)
UNLIMITED = ("UNLIMITED", "INFINITE", "0")
SECONDS_A_MINUTE, SECONDS_AN_HOUR, SECONDS_A_DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Allocation:
    least: int  # nodes
    nodes: int  # at most
    tasks: int  # in each node, that srun starts
    gpus: int  # of each node
    cpus: int  # of each node; 0: not said
    cpus_per_task: int  # 0: not said
    memory: str  # of each node, as Kubernetes writes it; empty: not said

    def resources(self) -> dict[str, Any]:
        kinds = {
            "requests": {"cpu": self.cpus, "memory": self.memory},
            "limits": {"memory": self.memory, GPU: self.gpus},
        }
        said = {
            kind: {name: amount for name, amount in amounts.items() if amount}
            for kind, amounts in kinds.items()
        }
        return set_fields(said)

    def variables(self) -> dict[str, str]:
        known = {
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS": self.nodes * self.tasks,
            "SLURM_NPROCS": self.nodes * self.tasks,
            "SLURM_NTASKS_PER_NODE": self.tasks,
            "SLURM_TASKS_PER_NODE": self.tasks,
            "SLURM_GPUS": self.nodes * self.gpus,
            "SLURM_GPUS_ON_NODE": self.gpus,
            "SLURM_GPUS_PER_NODE": self.gpus,
            "SLURM_CPUS_PER_TASK": self.cpus_per_task,
            "SLURM_CPUS_ON_NODE": self.cpus,
        }
        return {name: str(number) for name, number in known.items() if number}


def read_allocation(options: Mapping[str, str], remarks: Remarks) -> Allocation:
    tasks_in_all = _number("ntasks", options.get("ntasks"), 0)
    tasks = _number("ntasks-per-node", options.get("ntasks-per-node"), 0)
    low, _, high = options.get("nodes", "").partition("-")
    least = _number("nodes", low or None, max(1, -(-tasks_in_all // tasks) if tasks else 1))
    nodes = _number("nodes", high or None, least)
    if not 1 <= least <= nodes:
        raise CannotMigrate("--nodes", f"{options['nodes']} is no number of nodes")
    tasks = tasks or max(1, -(-tasks_in_all // nodes))
    gpus = _gpus(options, nodes, tasks, remarks)
    cpus_per_task = _number("cpus-per-task", options.get("cpus-per-task"), 0)
    cpus = tasks * cpus_per_task or gpus * _number("cpus-per-gpu", options.get("cpus-per-gpu"), 0)
    return Allocation(
        least, nodes, tasks, gpus, cpus, cpus_per_task, _memory(options, cpus, gpus, remarks)
    )


def seconds_of(time: str) -> int | None:
    """The seconds of `--time`; None: there is no limit."""
    if time.upper() in UNLIMITED:
        return None
    days, dash, clock = time.rpartition("-")
    parts = clock.split(":")
    if (
        not all(part.isdecimal() for part in parts)
        or len(parts) > 3
        or (dash and not days.isdecimal())
    ):
        raise CannotMigrate("--time", f"{time} is no time: write it as days-hours:minutes:seconds")
    if not dash and len(parts) < 3:
        parts = ["0", *parts]  # begins with minutes
    hours, minutes, seconds = (*map(int, parts), 0, 0)[:3]
    whole_days = int(days or 0) * SECONDS_A_DAY
    return whole_days + hours * SECONDS_AN_HOUR + minutes * SECONDS_A_MINUTE + seconds


def _number(option: str, given: str | None, default: int) -> int:
    if given is None:
        return default
    if not given.isdecimal():
        raise CannotMigrate(f"--{option}", f"{given} is no number")
    return int(given)


def _gpus(options: Mapping[str, str], nodes: int, tasks: int, remarks: Remarks) -> int:
    gres = None
    for one in options.get("gres", "").split(","):
        kind, _, number = one.partition(":")
        if kind == "gpu":
            gres = gres or number or "1"
        elif one:
            remarks.add("--gres", f"{one} is dropped: only GPUs are known here")
    for option, given, factor, divisor in (
        ("gpus-per-node", options.get("gpus-per-node"), 1, 1),
        ("gres", gres, 1, 1),
        ("gpus-per-task", options.get("gpus-per-task"), tasks, 1),
        ("gpus", options.get("gpus"), 1, nodes),
    ):
        if given is None:
            continue
        kind, _, number = given.partition("(")[0].rpartition(":")
        if not number.isdecimal():
            kind, number = number, "1"
        if kind:
            remarks.add(
                f"--{option}",
                f"GPUs of the kind {kind}: choose its nodes by a nodeSelector or an affinity in "
                "spec.template",
            )
        return -(-int(number) * factor // divisor)
    return 0


def _memory(options: Mapping[str, str], cpus: int, gpus: int, remarks: Remarks) -> str:
    for option, times in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
        given = options.get(option)
        if given is None:
            continue
        found = MEMORY.match(given)
        if found is None:
            raise CannotMigrate(f"--{option}", f"{given} is no amount of memory: write it as 64G")
        amount = int(found[1]) * times
        if amount:
            return f"{amount}{UNITS[found[2].upper()]}"
        remarks.add(
            f"--{option}", "names no amount here: set resources.requests.memory of the container"
        )
    return ""
