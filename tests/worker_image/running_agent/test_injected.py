"""The agent as it is brought into an image that has only torch: a folder, and nothing installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.torch_features import needs_torchrun_handlers
from tests.worker_image.agents import JOINING, SCRIPTS, Agents, Events, program
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


WORKER_IMAGE = ROOT / "worker_image"

SCRIPT = f"""
import elastic_pytorch, os, sys
sys.path.insert(0, {str(SCRIPTS)!r})
from events import event
elastic_pytorch.report(step=1)
path, rank = os.environ["PYTHONPATH"], os.environ["RANK"]
event("found", package=elastic_pytorch.__file__, path=path, rank=rank)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that worker_image/agent.Dockerfile makes, by the same means."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("image")
    for name in ("pyproject.toml", "__main__.py"):
        shutil.copy(WORKER_IMAGE / name, source)
    shutil.copytree(
        WORKER_IMAGE / "elastic_pytorch",
        source / "elastic_pytorch",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *options, "--target", made, source], check=True, timeout=120)
    shutil.copy(source / "__main__.py", made)
    return made


@pytest.fixture
def folder(tmp_path: Path, image: Path) -> Path:
    made = tmp_path / "opt" / "elastic-pytorch"
    shutil.copytree(image, made)
    for path in (*made.rglob("*"), made):
        path.chmod(path.stat().st_mode & ~0o222)  # as in the pod, where it is mounted read-only
    return made


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "found.py"
    path.write_text(SCRIPT)
    return path


def test_image_has_the_whole_package_and_the_rendezvous_handlers_entry_point(image: Path) -> None:
    for path in (WORKER_IMAGE / "elastic_pytorch").rglob("*.py"):
        assert (image / path.relative_to(WORKER_IMAGE)).read_bytes() == path.read_bytes()
    code = (
        "import importlib.metadata as m\n"
        "[point] = m.entry_points(group='torchrun.handlers', name='elastic-pytorch')\n"
        "print(point.value, m.distribution('elastic-pytorch').locate_file(''))"
    )
    # -S: without what is installed here, the folder is all that there is
    command = [sys.executable, "-S", "-c", code]
    found = subprocess.run(
        command,
        env={"PYTHONPATH": str(image)},
        text=True,
        capture_output=True,
        check=True,
        cwd=image.parent,
    )
    assert found.stdout.split() == [
        "elastic_pytorch.agent.torchrun_handler:handler_creator",
        str(image),
    ]


def test_image_file_does_what_this_module_does() -> None:
    text = (WORKER_IMAGE / "agent.Dockerfile").read_text()
    assert "pip install --no-index --no-deps --no-build-isolation" in text
    assert "COPY worker_image/pyproject.toml worker_image/__main__.py /src/" in text


def test_agent_starts_from_its_folder_by_a_python_that_has_torch_and_scripts_find_the_package(
    operator: ScriptedOperator,
    agents: Agents,
    events: Events,
    folder: Path,
    script: Path,
    tmp_path: Path,
    start_method: str,
) -> None:
    (tmp_path / "bin").mkdir()
    python = program(tmp_path / "bin" / "python", f'exec {sys.executable} "$@"')
    without_torch = [str(Path(sys.base_prefix) / "bin" / "python3"), "-S"]
    own = {
        "PYTHONPATH": "/image/has/this",
        "PET_START_METHOD": start_method,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    agent = agents("w0", script, command=[*without_torch, str(folder)], **own)
    operator.begin("w0")
    operator.wait_for("succeeded", "w0")
    [found] = events.all(what="found")
    assert found["package"] == str(folder / "elastic_pytorch" / "__init__.py")
    assert found["path"] == f"{folder}:/image/has/this"
    operator.end("complete")
    assert agent.wait() == 0


@needs_torchrun_handlers
def test_torchrun_of_the_users_finds_the_handler_by_pythonpath(
    operator: ScriptedOperator, agents: Agents, events: Events, folder: Path, script: Path
) -> None:
    torchrun = [str(Path(sys.executable).with_name("torchrun"))]
    joining = {**JOINING, "PYTHONPATH": folder, "ELASTIC_PYTORCH_CHECKPOINT_PATH": folder}
    agent = agents("w0", script, command=torchrun, **joining)
    operator.begin("w0")
    operator.wait_for("succeeded", "w0")
    assert [found["package"] for found in events.all(what="found")] == [
        str(folder / "elastic_pytorch" / "__init__.py")
    ]
    assert operator.last("w0").progress["checkpoints"] == 0, "it watches the folder, too"
    operator.end("complete")
    assert agent.wait() == 0


def test_old_python_is_named_in_the_termination_message(
    agents: Agents, folder: Path, script: Path, tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sitecustomize.py").write_text(
        "import sys; sys.version_info = (3, 9, 18, 'final', 0)\n"
    )
    agent = agents("w0", script, command=[sys.executable, str(folder)], PYTHONPATH=tmp_path / "old")
    assert agent.wait() == 2
    assert agent.termination_log.read_text() == (
        "elastic-pytorch needs Python 3.10 or newer in the image: "
        f"{sys.executable} is Python 3.9.18"
    )
