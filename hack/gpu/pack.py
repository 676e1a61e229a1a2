"""Packs all that the measurements need on a machine with torch and without a network into .cluster/gpu-pack.

.venv/bin/python -m gpu.pack, with hack in PYTHONPATH: `make gpu-pack` does so.
"""

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / ".cluster" / "gpu-pack"
PACKAGE = ROOT / "worker_image" / "elastic_pytorch"
# Parts of the package that import a framework, for scripts that use it.
ADAPTERS = ("deepspeed", "lightning", "transformers")
EXTRAS = {"obstore"}  # imported only where a script keeps its checkpoints in object storage
OURS = {"elastic_pytorch", "gpu", "tests"}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, and what may be modules in them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def packed_files() -> set[Path]:
    """The programs of this folder, and all that they import from the tests, by path in the checkout."""
    here = Path(__file__).parent
    waiting = [path for path in here.glob("*.py") if path != Path(__file__)]
    found = {*waiting}
    while waiting:
        for name in imports(waiting.pop()):
            path = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and path.is_file() and path not in found:
                found.add(path)
                waiting.append(path)
    return {path.relative_to(ROOT) for path in found}


def package_files() -> list[Path]:
    """The modules of the worker's package, without the adapters of frameworks."""
    return [
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in ADAPTERS
    ]


def lacking(files: Iterable[Path]) -> set[str]:
    """The packages that files import and that a Python with torch need not have."""
    names = {name.partition(".")[0] for path in files for name in imports(path)}
    return names - OURS - EXTRAS - {"torch"} - set(sys.stdlib_module_names)


def pack(folder: Path) -> None:
    """Writes the folder, in place of one that is there."""
    files = packed_files()
    if missing := lacking([*(ROOT / path for path in files), *package_files()]):
        raise SystemExit(
            f"no wheels are packed of {', '.join(sorted(missing))}: import them only where they are there"
        )
    shutil.rmtree(folder, ignore_errors=True)
    for path in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    # Before a package of that name which a machine may have.
    for tests in ("tests", "tests/worker_image"):
        (folder / tests / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("run.sh"), folder)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "COMMIT").write_text(commit.stdout)
    with tempfile.TemporaryDirectory() as copy:  # a build leaves files beside its sources
        source = Path(copy, "worker_image")
        shutil.copytree(
            ROOT / "worker_image",
            source,
            ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
        )
        build = (
            "build",
            "--quiet",
            "--wheel",
            "--offline",
            "--no-build-isolation",
            "--python",
            sys.executable,
        )
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, *build, "--out-dir", folder / "wheels", source], check=True)


if __name__ == "__main__":
    pack(PACK)
    print(f"{PACK} is packed: copy it to the machine, and start its run.sh there.")
