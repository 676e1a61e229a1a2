"""Packs into .cluster/gpu-pack what the measurements need beside torch, without a network."""

import shutil
from pathlib import Path

from measure.kind_cluster import ROOT
from measure.program import commit_of_checkout

PACK = ROOT / ".cluster" / "gpu-pack"
# What the programs import from the tests.
OF_TESTS = (
    *("paths", "ports", "waiting", "worker_image/agents", "worker_image/one_gpu"),
    *("worker_image/scripted_operator", "worker_image/warm_python"),
)


def pack(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for package in (ROOT / "hack" / "gpu", ROOT / "worker_image" / "elastic_pytorch"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, folder / package.name, ignore=without)
    for module in OF_TESTS:
        target = folder / "tests" / f"{module}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / f"{module}.py", target)
    # These packages come before any of the same name on a machine.
    for tests in ("tests", "tests/worker_image"):
        (folder / tests / "__init__.py").touch()
    shutil.copy(folder / "gpu" / "run.sh", folder)
    (folder / "COMMIT").write_text(commit_of_checkout())


if __name__ == "__main__":
    pack(PACK)
    print(f"{PACK} is packed: copy it to the machine, and start its run.sh there.")
