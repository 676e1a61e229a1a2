"""What is packed, and that a Python with torch lacks nothing of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from gpu.model import SIZES, Gpt
from gpu.pack import ROOT, lacking, pack, package_files, packed_files

pytestmark = [pytest.mark.process, pytest.mark.torch]


def test_files_of_the_tests_come_with_all_that_they_import() -> None:
    packed = {str(path) for path in packed_files()}
    assert {"hack/gpu/__main__.py", "hack/gpu/train.py", "hack/gpu/model.py"} <= packed
    assert {"tests/worker_image/agents.py", "tests/worker_image/one_gpu.py", "tests/waiting.py", "tests/paths.py"} <= packed
    assert "hack/gpu/pack.py" not in packed


def test_nothing_is_needed_beside_torch() -> None:
    assert lacking([*(ROOT / path for path in packed_files()), *package_files()]) == set()


def test_package_that_is_lacking_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\nimport torch.nn\nfrom rich.table import Table\nfrom . import b\n")
    assert lacking([tmp_path / "a.py"]) == {"rich"}


def test_packed_programs_run_without_the_checkout(tmp_path: Path) -> None:
    pack(tmp_path / "pack")
    [wheel] = (tmp_path / "pack" / "wheels").glob("*.whl")
    path = f"{wheel}:{tmp_path / 'pack'}:{tmp_path / 'pack' / 'hack'}"
    command = [sys.executable, "-P", "-m", "gpu", "--help"]
    ran = subprocess.run(command, env={"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "prepared-1B" in ran.stdout


@pytest.mark.parametrize(("name", "millions"), [("120M", 124), ("1B", 1017)])
def test_models_have_about_as_many_parameters_as_they_are_called_by(name: str, millions: int) -> None:
    import torch

    with torch.device("meta"):
        model = Gpt(SIZES[name])
    assert round(sum(p.numel() for p in model.parameters()) / 1e6) == pytest.approx(millions, rel=0.03)
