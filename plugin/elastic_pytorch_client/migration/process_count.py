"""How many training processes a pod runs."""

from elastic_pytorch_client.migration.remarks import Remarks

COUNTED_BY_COMMAND = (
    "the command that is kept has an option of its own for the number of processes, so spec.nprocPerNode is left out: set it if that "
    "number is not the number of accelerators"
)
COUNTED_BY_TORCH = ("auto", "cpu", "gpu", "xpu")


def process_count(path: str, given: str, *, started_by: str, accelerators: int, remarks: Remarks) -> int | str | None:
    """The job's nprocPerNode; None: its default means the same, one for each accelerator that the container asks for, else one."""
    if started_by == "python":
        return _one(path, given, accelerators, remarks)
    if given.isdecimal():
        return int(given)
    if given not in COUNTED_BY_TORCH:
        remarks.add(path, f"{given} is not known here: set spec.nprocPerNode, unless it is the number of accelerators")
        return None
    if accelerators and given in ("auto", "gpu", "xpu"):
        return None
    if given in ("auto", "cpu") and not accelerators:
        remarks.add(
            path,
            f"{given} starts one process for each core of the CPU limit, or of the node without one, where there are no devices. "
            "It is kept; set spec.nprocPerNode to a number to have the same everywhere",
        )
    return given


def _one(path: str, given: str, accelerators: int, remarks: Remarks) -> int | None:
    """Without torchrun each pod starts one process, whatever the field says."""
    if accelerators <= 1 and not given.isdecimal():
        return None
    if accelerators > 1 and not given.isdecimal():
        remarks.add(
            path,
            f"each pod started one process, with all {accelerators} accelerators, and so it does now. For one process for each "
            "accelerator, remove spec.nprocPerNode",
        )
    elif given.isdecimal() and int(given) > 1:
        remarks.add(
            path,
            f"each pod started one process, and WORLD_SIZE counted {given} for it. A script that starts processes itself should let "
            f"the agent do it: set spec.nprocPerNode to {given}, and read RANK, LOCAL_RANK and WORLD_SIZE in the script",
        )
    return 1 if accelerators > 1 else None
