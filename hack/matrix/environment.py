"""A virtual environment with one release of torch, and what the tests need beside it."""

import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from rows import MatrixRow

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INDEX_SECONDS = 5.0
# Beside torch and numpy, whose newest release depends on the Python.
PACKAGES = (
    *("aiohttp", "cryptography", "hypothesis", "prometheus-client", "pytest", "pytest-asyncio"),
    *("pytest-xdist", "pyyaml", "setuptools"),
    # For object storage: moto's server, as moto[s3] has it.
    *("flask", "flask-cors", "moto", "obstore", "py-partiql-parser"),
)
UV = (sys.executable, "-m", "uv")
# No cache: it would keep the 5 GB of each release.
INSTALL = (*UV, "pip", "install", "--no-cache", "--no-progress", "--python")


def pinned(lock: str, names: Sequence[str]) -> list[str]:
    """The requirements of a lock file for some packages: `name==version`."""
    found = dict(
        line.split(" ")[0].split("==")
        for line in lock.splitlines()
        if "==" in line and line[0] not in " #"
    )
    return [f"{name}=={found[name]}" for name in names]


def index_answers() -> bool:
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=INDEX_SECONDS):
            return True
    except OSError:
        return False


def make_environment(
    folder: Path, root: Path, row: MatrixRow, index: str | None, log: Path
) -> Path:
    """Returns the interpreter; without an index of torch's wheels, torch comes from PyPI."""
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"
    packages: Sequence[str] = PACKAGES
    if row.python != "3.10":  # the lock file is for the operator's Pythons
        packages = pinned((root / "requirements-dev.lock").read_text(), PACKAGES)
    ours = ("--no-deps", "--no-build-isolation", "--editable", str(root / "worker_image"))
    torch = f"torch=={row.torch}"
    commands = [
        (*UV, "venv", "--python", row.python, str(folder)),
        (*INSTALL, str(python), torch, *(("--index-url", index) if index else ())),
        (*INSTALL, str(python), torch, "numpy", *packages),
        (*INSTALL, str(python), *ours),
    ]
    if row.packages:
        # Without isolation, as DeepSpeed is built for the installed torch.
        commands.append((*INSTALL, str(python), "--no-build-isolation", torch, *row.packages))
    with log.open("wb") as output:
        for command in commands:
            subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=True)
    # The operator is only put on the path, as it may require a newer Python.
    purelib = Path(ask(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (purelib / "operator-of-this-checkout.pth").write_text(f"{root / 'operator'}\n")
    return python


def python_release(python: Path) -> str:
    return ask(python, "import sys; print('%d.%d' % sys.version_info[:2])")


def torch_release(python: Path) -> str:
    return ask(python, "import torch; print(torch.__version__)")


def ask(python: Path, code: str) -> str:
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
