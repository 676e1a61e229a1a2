"""Packs into .cluster/gpu-pack what the measurements need beside torch, without a network."""

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from measure.program import commit_of_checkout

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / ".cluster" / "gpu-pack"
PACKAGE = ROOT / "worker_image" / "elastic_pytorch"
ADAPTERS = ("deepspeed", "lightning", "transformers")  # which import a framework
EXTRAS = {"obstore"}  # imported only for checkpoints in object storage
OURS = {"elastic_pytorch", "gpu", "tests"}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, and the names that may be modules in them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def packed_files() -> set[Path]:
    """The programs of this folder, and their imports from the tests, by path in the checkout."""
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
    return [
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in ADAPTERS
    ]


def lacking(files: Iterable[Path]) -> set[str]:
    """The packages that files import and that Python and torch do not bring."""
    names = {name.partition(".")[0] for path in files for name in imports(path)}
    return names - OURS - EXTRAS - {"torch"} - set(sys.stdlib_module_names)


def pack(folder: Path) -> None:
    files = packed_files()
    if missing := lacking([*(ROOT / path for path in files), *package_files()]):
        names = ", ".join(sorted(missing))
        raise SystemExit(f"no wheels are packed of {names}: import them only where they are there")
    shutil.rmtree(folder, ignore_errors=True)
    for path in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    # These packages come before any of the same name on a machine.
    for tests in ("tests", "tests/worker_image"):
        (folder / tests / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("run.sh"), folder)
    (folder / "COMMIT").write_text(commit_of_checkout())
    with tempfile.TemporaryDirectory() as copy:  # a build leaves files beside its sources
        source = Path(copy, "worker_image")
        built = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT / "worker_image", source, ignore=built)
        build = ("build", "--quiet", "--wheel", "--offline", "--no-build-isolation")
        uv = Path(sys.executable).with_name("uv")
        python = ("--python", sys.executable, "--out-dir", folder / "wheels")
        subprocess.run([uv, *build, *python, source], check=True)


if __name__ == "__main__":
    pack(PACK)
    print(f"{PACK} is packed: copy it to the machine, and start its run.sh there.")
