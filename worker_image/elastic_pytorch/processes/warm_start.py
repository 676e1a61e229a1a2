"""Starts workers in milliseconds, as forks of a process that has imported torch.

The import takes seconds of CPU time, and the agent needs torch, too. So multiprocessing's
forkserver is a fork of the agent, before that has a thread or has used a GPU.
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from multiprocessing import forkserver, resource_tracker, util
from typing import Any, NoReturn

from elastic_pytorch.log import logger
from elastic_pytorch.processes.orphans import die_with_parent, forget_resource_tracker
from elastic_pytorch.progress.report import report_group_formed

# Nearly every training script imports these.
MODULES = (
    "torch",
    "torch.distributed",
    "torch.distributed.elastic.multiprocessing.api",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch.utils.data.distributed",
    "torch.utils.serialization",
    "numpy",
    "numpy.random",
    "elastic_pytorch.processes.run_script",
)
# The first optimizer or DistributedDataParallel would import it, for a second in each worker.
FIRST_STEP_MODULES = ("torch._dynamo",)
# All that have `init_process_group`.
GROUP_MODULES = (
    "torch.distributed.distributed_c10d",
    "torch.distributed.device_mesh",
    "torch.distributed",
)
PROBE_SECONDS = 30.0
CUDA_LOST = 3  # the exit code of a forked process that cannot use GPUs
CUDA_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
# The import sets them for itself. A compile cache is where its pod or the script says.
LEFT_TO_SCRIPTS = (CUDA_CHECK, "TORCHINDUCTOR_CACHE_DIR")


def import_modules(names: Sequence[str]) -> None:
    given = {name: os.environ.get(name) for name in LEFT_TO_SCRIPTS}
    # With it, torch.cuda.is_available() does not use CUDA, which does not survive a fork.
    os.environ[CUDA_CHECK] = "1"
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # the script will import it itself, or never
            if name not in MODULES + FIRST_STEP_MODULES:
                logger.warning("cannot preload %s: %s: %s", name, type(error).__name__, error)
    for name, value in given.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def start_forkserver() -> None:
    multiprocessing.set_forkserver_preload(list(MODULES))
    resource_tracker.ensure_running()
    gc.collect()
    # Workers share present objects, which their garbage collections skip.
    gc.freeze()
    try:
        with _forking_instead_of_executing():
            forkserver.ensure_running()
        _hold_address()
        _probe()
    except Exception as error:  # an unexpected Python: the stock way remains
        logger.warning(
            "cannot fork the forkserver, starting a new interpreter: %s: %s",
            type(error).__name__,
            error,
        )
        _forget_forkserver()
        forkserver.ensure_running()


def _hold_address() -> None:
    """Gives the forkserver's socket a path that survives cleaners of temporary files."""
    server = forkserver._forkserver
    descriptor = os.open(server._forkserver_address, os.O_PATH | os.O_CLOEXEC)  # type: ignore[attr-defined]
    server._forkserver_address = f"/proc/self/fd/{descriptor}"  # type: ignore[attr-defined]


@contextlib.contextmanager
def _forking_instead_of_executing() -> Iterator[None]:
    stock = util.spawnv_passfds
    before = _open_descriptors()

    def fork(path: bytes, args: Sequence[bytes | str], passfds: Sequence[int]) -> int:
        del path
        option, command = (os.fsdecode(argument) for argument in args[-2:])
        if option != "-c" or "multiprocessing.forkserver" not in command:
            raise RuntimeError("multiprocessing starts its forkserver in an unknown way")
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python warns of threads, but numpy's OpenBLAS, which has some, handles a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            util.spawnv_passfds = stock  # workers start processes too
            _be_forkserver(command, parent, _open_descriptors() - before - set(passfds))
        return pid

    util.spawnv_passfds = fork  # type: ignore[assignment] # typeshed knows bytes only
    try:
        yield
    finally:
        util.spawnv_passfds = stock


def _be_forkserver(command: str, parent: int, not_ours: set[int]) -> NoReturn:
    """Makes a fork of the agent equivalent to a new interpreter."""
    try:
        os.setsid()  # a Ctrl-C or a signal to the agent's group is the agent's
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        die_with_parent(parent)
        # One of them is the agent's end of the pipe that ends the forkserver.
        for descriptor in not_ours:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        forkserver._forkserver.__init__()  # type: ignore[misc] # the fork holds its lock
        forget_resource_tracker()
        exec(command, {"__name__": "__main__", "__builtins__": __builtins__})
    finally:
        os._exit(0)


def _forget_forkserver() -> None:
    server = forkserver._forkserver
    pid = getattr(server, "_forkserver_pid", None)
    if pid:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    server.__init__()  # type: ignore[misc]
    server.set_forkserver_preload(list(MODULES))


def _probe() -> None:
    process = multiprocessing.get_context("forkserver").Process(target=_look_for_cuda, daemon=True)
    process.start()
    process.join(PROBE_SECONDS)
    if process.exitcode == CUDA_LOST:
        raise RuntimeError(
            "a module that was imported has asked CUDA for devices, "
            "which no forked process can use then"
        )
    if process.exitcode != 0:
        raise RuntimeError(f"a process that does nothing ended with {process.exitcode}")


def _look_for_cuda() -> None:
    import torch  # noqa: PLC0415 - it is imported already

    # Absent where torch is built without CUDA. Torch makes the same check before it uses a GPU.
    if getattr(torch._C, "_cuda_isInBadFork", bool)():
        sys.exit(CUDA_LOST)


def _open_descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - names are all that is wanted


def report_formed_groups() -> None:
    """Makes `init_process_group`, in this process and its forks, end the phase `init`."""
    reporting: dict[Any, Any] = {}
    for module in map(importlib.import_module, GROUP_MODULES):
        if (stock := vars(module).get("init_process_group")) is not None:
            vars(module)["init_process_group"] = reporting.setdefault(stock, _reporting(stock))


def _reporting(stock: Callable[..., None]) -> Callable[..., None]:
    @wraps(stock)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        stock(*args, **kwargs)
        report_group_formed()

    return init_process_group
