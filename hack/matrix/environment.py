"""A virtual environment with one release of torch, and what the tests need beside it."""

import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INDEX_SECONDS = 5.0
# Beside torch and numpy, whose newest release depends on the Python: what the tests and the modules of the operator that they use import.
PACKAGES = (
    *("aiohttp", "cryptography", "hypothesis", "prometheus-client", "pytest", "pytest-asyncio", "pytest-xdist"),
    *("pyyaml", "setuptools"),
    *("flask", "flask-cors", "moto", "obstore", "py-partiql-parser"),  # for object storage: moto's server, as moto[s3] has it
)
# Of torch's modules few are used: what is, Python compiles when it is imported.
PIP = ("-m", "pip", "install", "--no-cache-dir", "--no-compile", "--disable-pip-version-check", "--no-input")


def pinned(lock: str, names: Sequence[str]) -> list[str]:
    """Returns what a lock file says of packages, as requirements: `name==version`."""
    found = dict(line.split(" ")[0].split("==") for line in lock.splitlines() if "==" in line and line[0] not in " #")
    return [f"{name}=={found[name]}" for name in names]


def index_answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=INDEX_SECONDS):
            return True
    except OSError:
        return False


@contextmanager
def virtual_environment(folder: Path, interpreter: str) -> Iterator[Path]:
    """Makes an environment of an interpreter, and yields its own; the folder is removed before, and at the end of the `with` block."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        yield folder / "bin" / "python"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def install(python: Path, root: Path, torch: str, index: str | None, log: Path) -> None:
    """Installs all that the tests need, torch from an index of its wheels for the CPU or from PyPI; pip's output goes to a log file."""
    # The lock file is for the Pythons of the operator: for an older one, pip chooses.
    locked = pinned((root / "requirements-dev.lock").read_text(), PACKAGES)
    with log.open("ab") as output:
        for arguments in (
            [f"torch=={torch}", *(["--index-url", index] if index else [])],
            ["--upgrade", "numpy", *(PACKAGES if python_release(python) == "3.10" else locked)],
            ["--no-deps", "--no-build-isolation", "--editable", str(root / "worker_image")],
        ):
            subprocess.run([str(python), *PIP, *arguments], stdout=output, stderr=subprocess.STDOUT, check=True)
    # The operator is only put on the path: it may ask for a newer Python than the worker's package.
    packages = Path(ask(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (packages / "operator-of-this-checkout.pth").write_text(f"{root / 'operator'}\n")


def install_framework(python: Path, packages: Sequence[str], torch: str, log: Path) -> None:
    """Installs a framework beside a release of torch, which stays; pip's output goes to a log file."""
    # Without isolation: DeepSpeed is built where it is installed, and looks at the torch that is there.
    arguments = ["--no-build-isolation", f"torch=={torch}", *packages]
    with log.open("ab") as output:
        subprocess.run([str(python), *PIP, *arguments], stdout=output, stderr=subprocess.STDOUT, check=True)


def python_release(python: Path) -> str:
    return ask(python, "import sys; print('%d.%d' % sys.version_info[:2])")


def ask(python: Path, code: str) -> str:
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
