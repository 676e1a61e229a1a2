"""Agents, and other Pythons, that start in milliseconds: copies of a process that has torch.

It has imported the parts of torch that an agent imports. The import is most of what an agent costs
on two cores, and its way is the same each time. Nothing of elastic_pytorch is imported before the
fork. Workers with an even and with an odd number come from two processes, whose hashes of strings
differ, as those of pods do.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tests.paths import ROOT
from tests.waiting import WAIT_SECONDS

MODULES = (
    "torch.distributed.run",
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.utils.data.distributed",
    "numpy.random",
)
MAX_MESSAGE_BYTES = 1 << 20
# What tests say to an agent, and neither Python nor torch reads when it is imported.
READ_LATER = (
    "ELASTIC_PYTORCH_",
    "PET_",
    "TORCHELASTIC_LOG_",
    "EVENTS",
    "MODE",
    "SCRIPTS",
    "WORKER",
    "USE_LIBUV",
    "NCCL_",
    "GLOO_",
    "AWS_",
    "TMPDIR",
)
# The variables that the tests began with: many a module sets others in the process that imports it.
# The number of threads is read by numpy and torch when they are imported.
INHERITED = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PET_", "ELASTIC_PYTORCH_", "OMP_"))
} | {"OMP_NUM_THREADS": "1"}


class ForkedProcess:
    """A process that another one has forked, with what `subprocess.Popen` says of one."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self.pid = self._next()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ask(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._ask(timeout)) is None:
            raise subprocess.TimeoutExpired("a forked agent", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _ask(self, seconds: float | None) -> int | None:
        if self.returncode is None and _readable([self._told.fileno()], seconds):
            self.returncode = self._next()
            self._told.close()
        return self.returncode

    def _next(self) -> int:
        message = self._told.recv(32)
        assert message, "the process that forks agents has ended"
        return int(message)


class WarmPython:
    """A process that imports torch once, and turns copies of itself into agents.

    It ends with this process.
    """

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env=INHERITED,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(
        self, words: Sequence[str], environ: dict[str, str], directory: Path, out: int, err: int
    ) -> ForkedProcess:
        """Starts a Python as the leader of a session, with these descriptors for its output.

        The words of its command line are `-m` and a module, or `-c` and code, and arguments.
        """
        told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = json.dumps({"words": words, "environ": environ, "directory": str(directory)})
        with theirs:
            socket.send_fds(self._orders, [order.encode()], [out, err, theirs.fileno()])
        return ForkedProcess(told)


STARTED: dict[int, WarmPython] = {}


class Ended(NamedTuple):
    """What has become of a process; these are the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def script_code(script: Path, *arguments: str) -> str:
    """Code that does what `python script` does."""
    words = [str(script), *arguments]
    start = f"import runpy, sys; sys.argv = {words}; sys.path.insert(0, {str(script.parent)!r})"
    return f"{start}; runpy.run_path({str(script)!r}, run_name='__main__')"


def start_python(code: str, out: Path, err: Path, **environment: str) -> ForkedProcess:
    """Starts what runs code as `python -c` does, and imports torch in no time.

    It inherits what agents inherit.
    """
    warm = warm_python(INHERITED, f"w{environment.get('RANK', 0)}")
    assert warm is not None
    with out.open("wb") as to_out, err.open("wb") as to_err:
        return warm.start(
            ["-c", code], INHERITED | environment, ROOT, to_out.fileno(), to_err.fileno()
        )


def run_python(code: str, **environment: str) -> Ended:
    """Does what `start_python` does, and waits for its end."""
    with tempfile.TemporaryDirectory() as name:
        out, err = Path(name, "out"), Path(name, "err")
        process = start_python(code, out, err, **environment)
        try:
            return Ended(process.wait(WAIT_SECONDS), out.read_text(), err.read_text())
        finally:
            process.send_signal(signal.SIGKILL)


def warm_python(environ: dict[str, str], worker: str) -> WarmPython | None:
    """The process to fork an agent from; None: its variables matter when torch is imported."""
    read = [name for name in environ.keys() | INHERITED.keys() if not name.startswith(READ_LATER)]
    if any(environ.get(name) != INHERITED.get(name) for name in read):
        return None
    which = ord(worker[-1]) % 2
    if which not in STARTED:
        STARTED[which] = WarmPython()
    return STARTED[which]


def _readable(descriptors: Iterable[int], seconds: float | None = None) -> list[int]:
    """Those with something to read; select() takes none above 1,023, which pytest may have."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [ready for ready, _ in poll.poll(None if seconds is None else 1000.0 * seconds)]


def _serve(orders: socket.socket) -> dict[str, Any]:
    """Forks until orders end, and exits; returns in each forked process, with its order."""
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in _readable([orders.fileno(), *children]):
            if ready == orders.fileno():
                message, descriptors, _, _ = socket.recv_fds(orders, MAX_MESSAGE_BYTES, 3)
                if not message:
                    os._exit(0)
                out, err, told = descriptors
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    os.dup2(out, 1)
                    os.dup2(err, 2)
                    for descriptor in (
                        orders.detach(),
                        *descriptors,
                        *children,
                        *(told.detach() for _, told in children.values()),
                    ):
                        os.close(descriptor)
                    return dict(json.loads(message))
                os.close(out)
                os.close(err)
                answers = socket.socket(fileno=told)
                answers.send(str(pid).encode())
                children[os.pidfd_open(pid)] = (pid, answers)
            else:
                pid, answers = children.pop(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                # Its end may be of no interest any more.
                with answers, contextlib.suppress(OSError):
                    answers.send(str(code).encode())


def _become(order: dict[str, Any]) -> None:
    """Does what a new interpreter does with the words of a command line."""
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environ"])
    tempfile.tempdir = None
    sys.path[0] = str(Path.cwd())
    option, what, *arguments = order["words"]
    sys.argv = [option, *arguments]
    if option == "-c":
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As the agent does when it imports them: torch.cuda then asks no driver, whose state would not
    # survive a fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    for name in MODULES:
        with contextlib.suppress(ImportError):  # not every torch comes with numpy
            importlib.import_module(name)
    gc.collect()
    # An agent that searched these objects for garbage, at its end at the latest, would copy all of
    # their memory: a second.
    gc.freeze()
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
