"""Groups of processes forked from one with torch: gloo without GPUs, or NCCL on one GPU."""

import atexit
import gc
import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.worker_image.one_gpu import one_gpu

PROCESSES = multiprocessing.get_context("forkserver")
# What modules of tests import: half of a second of CPU time in each process that imports it itself.
PROCESSES.set_forkserver_preload(
    [
        "torch",
        "torch.distributed",
        "torch.nn.parallel",
        "torch._dynamo",
        "torch.distributed.checkpoint.state_dict",
        "torch.distributed.fsdp",
        "torch.distributed.tensor.parallel",
        "pytest",
        "elastic_pytorch.state.sharded.sharded_state",
        "elastic_pytorch.training.streams.loader",
        "elastic_pytorch.training.training_loop",
        __name__,
    ]
)
# A forked process that searched these objects for garbage would copy all of their memory.
gc.freeze()
# At its end the process frees them, or the bindings of triton report leaks.
atexit.register(gc.unfreeze)
LIMIT_SECONDS = 120.0


def run_group(
    world_size: int, function: Callable[..., Any], *arguments: Any, backend: str = "gloo"
) -> list[Any]:
    """What a function of a module returns in each process of a group, by rank."""
    with running_group(world_size, function, *arguments, backend=backend) as group:
        return group.outcomes()


def run_alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process with this one's variables and folder, and no group."""
    with tempfile.TemporaryDirectory() as name:
        process = PROCESSES.Process(
            target=_alone, args=(Path(name), dict(os.environ), Path.cwd(), function, arguments)
        )
        process.start()
        try:
            return RunningGroup(Path(name), [process]).outcomes()[0]
        finally:
            process.kill()


class RunningGroup:
    """Processes that run a function as a group, by rank."""

    def __init__(self, folder: Path, processes: list[Any]) -> None:
        self._folder, self.processes = folder, processes

    def exit_codes(self) -> list[int | None]:
        """Waits for the ends of all of them; None: it runs on."""
        for process in self.processes:
            process.join(LIMIT_SECONDS)
        return [process.exitcode for process in self.processes]

    def outcomes(self) -> list[Any]:
        """What the function has returned, by rank; all must have come to their end."""
        exit_codes = self.exit_codes()
        assert exit_codes == [0] * len(exit_codes), (
            f"exit codes {exit_codes}; None: it runs on\n{self.errors()}"
        )
        return [
            pickle.loads((self._folder / f"rank-{rank}").read_bytes())
            for rank in range(len(exit_codes))
        ]

    def errors(self) -> str:
        """What the processes have raised.

        The standard error that they share may be that of an earlier test.
        """
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("error-*")))


@contextmanager
def running_group(
    world_size: int, function: Callable[..., Any], *arguments: Any, backend: str = "gloo"
) -> Iterator[RunningGroup]:
    """A group that runs a function, see `run_group`; nothing of it outlives the context."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [
            PROCESSES.Process(
                target=_member, args=(folder, rank, world_size, backend, function, arguments)
            )
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        try:
            yield RunningGroup(folder, processes)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _be_a_main_process() -> None:
    """Has data loaders fork, as in a script: else each starts a forkserver, which imports torch."""
    multiprocessing.set_start_method(None, force=True)


def _alone(
    folder: Path,
    environ: dict[str, str],
    directory: Path,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    try:
        _be_a_main_process()
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(directory)
        (folder / "rank-0").write_bytes(pickle.dumps(function(*arguments)))
    except BaseException:
        (folder / "error-0").write_text(traceback.format_exc())
        raise


def _member(
    folder: Path,
    rank: int,
    world_size: int,
    backend: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    try:
        _be_a_main_process()
        torch.set_num_threads(1)
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size), **one_gpu(f"rank-{rank}")}
        if backend == "gloo":
            # Or fully_shard would put the model on the GPU, where gloo cannot gather it.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        dist.init_process_group(
            backend, init_method=f"file://{folder}/store", rank=rank, world_size=world_size
        )
        outcome = function(*arguments)
        (folder / f"rank-{rank}").write_bytes(pickle.dumps(outcome))
        if not dist.is_initialized():  # the function has destroyed the group
            return
        dist.barrier()
        # Whose destruction may hang: torch waits for a thread that may want the GIL, and holds the
        # GIL.
        if backend != "gloo":
            dist.destroy_process_group()
    except BaseException:
        (folder / f"error-{rank}").write_text(traceback.format_exc())
        raise
