"""A virtual environment with one release of torch, and what the tests need beside it."""

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INDEX_SECONDS = 5.0
# Beside torch and numpy, whose newest release depends on the Python: what the tests and the modules of the operator that they use import.
PACKAGES = (
    "aiohttp",
    "cryptography",
    "hypothesis",
    "prometheus-client",
    "pytest",
    "pytest-asyncio",
    "pytest-xdist",
    "pyyaml",
    "setuptools",
)


def pinned(lock: str, names: Sequence[str]) -> list[str]:
    """What a lock file says of packages, as requirements: `name==version`."""
    found = dict(line.split(" ")[0].split("==") for line in lock.splitlines() if "==" in line and line[0] not in " #")
    return [f"{name}=={found[name]}" for name in names]


def index_answers(url: str) -> bool:
    """Whether a package index can be reached from here."""
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=INDEX_SECONDS):
            return True
    except OSError:
        return False


class Environment:
    """Is removed at the end of the `with` block.

    Args:
        folder: where it lies; what an interrupted run has left there is removed.
        interpreter: the Python it is made of.
    """

    def __init__(self, folder: Path, interpreter: str) -> None:
        self._folder = folder
        self._interpreter = interpreter
        self.python = folder / "bin" / "python"

    def __enter__(self) -> "Environment":
        shutil.rmtree(self._folder, ignore_errors=True)
        subprocess.run([self._interpreter, "-m", "venv", str(self._folder)], check=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def install(self, root: Path, torch: str, index: str | None, log: Path) -> None:
        """Installs all that the tests need; pip's output goes to a log file.

        Args:
            root: of the repository. The worker's package is installed from there, the operator only put on the path: it may ask for a
                newer Python than the worker.
            torch: the release.
            index: of torch's wheels for the CPU; None: PyPI's are taken.
            log: the log file.

        Raises:
            subprocess.CalledProcessError: something cannot be installed.
        """
        self._pip(log, [f"torch=={torch}", *(["--index-url", index] if index else [])])
        # The lock file is for the Pythons of the operator: for an older one, pip chooses.
        locked = pinned((root / "requirements-dev.lock").read_text(), PACKAGES)
        self._pip(log, ["--upgrade", "numpy", *(PACKAGES if self.python_release() == "3.10" else locked)])
        self._pip(log, ["--no-deps", "--no-build-isolation", "--editable", str(root / "worker_image")])
        packages = Path(self._ask("import sysconfig; print(sysconfig.get_path('purelib'))"))
        (packages / "operator-of-this-checkout.pth").write_text(f"{root / 'operator'}\n")

    def torch(self) -> str:
        """The release and the kind of torch, as it tells it itself."""
        return self._ask("import torch; print(torch.__version__)")

    def python_release(self) -> str:
        """Python's release, without the patch."""
        return self._ask("import sys; print('%d.%d' % sys.version_info[:2])")

    def _pip(self, log: Path, arguments: Sequence[str]) -> None:
        # Of torch's modules few are used: what is, Python compiles when it is imported.
        options = ["--no-cache-dir", "--no-compile", "--disable-pip-version-check"]
        command = [str(self.python), "-m", "pip", "install", *options, *arguments]
        with log.open("ab") as output:
            environ = {**os.environ, "PIP_NO_INPUT": "1"}
            subprocess.run(command, env=environ, stdout=output, stderr=subprocess.STDOUT, check=True)

    def _ask(self, code: str) -> str:
        return subprocess.run([str(self.python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
