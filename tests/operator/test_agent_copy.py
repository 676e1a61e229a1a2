"""The copy of the agent: whole, readable by anybody, and able to run."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_pytorch_operator.agent_copy import CopyError, copy_agent

CHECKOUT = Path(__file__).parents[2] / "worker_image"


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_anybody_may_read_the_copy(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    count = copy_agent(tmp_path, CHECKOUT)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == count
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()} == {0o755}


def test_torchrun_finds_the_rendezvous_handler_in_the_copy(tmp_path: Path) -> None:
    copy_agent(tmp_path, CHECKOUT)
    code = (
        "import importlib.metadata as m\n"
        "[point] = m.entry_points(group='torchrun.handlers', name='elastic-pytorch')\n"
        "print(point.value, point.dist.version, m.distribution('elastic-pytorch').locate_file(''))"
    )
    # -S: without what is installed here, the copy is all that there is
    found = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        text=True,
        capture_output=True,
        check=True,
        cwd=tmp_path.parent,
    )
    assert found.stdout.split() == ["elastic_pytorch.torchrun:handler_creator", "0.2.0", str(tmp_path)]


def test_nothing_of_the_package_is_missing(tmp_path: Path) -> None:
    copy_agent(tmp_path, CHECKOUT)
    for path in (CHECKOUT / "elastic_pytorch").rglob("*.py"):
        assert (tmp_path / path.relative_to(CHECKOUT)).read_bytes() == path.read_bytes()


def test_copying_again_is_no_trouble(tmp_path: Path) -> None:
    assert copy_agent(tmp_path, CHECKOUT) == copy_agent(tmp_path, CHECKOUT)


def test_copy_takes_less_than_half_a_second_with_the_start_of_python(tmp_path: Path) -> None:
    code = "import sys, pathlib; from elastic_pytorch_operator.agent_copy import copy_agent"
    code += f"; copy_agent(pathlib.Path(sys.argv[1]), pathlib.Path({str(CHECKOUT)!r}))"
    took = []
    for _ in range(3):
        before = time.monotonic()
        subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
        took.append(time.monotonic() - before)
    assert min(took) < 0.5


def test_broken_source_says_what_is_missing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "elastic_pytorch").mkdir(parents=True)
    with pytest.raises(CopyError, match=r"cannot copy the agent .* No such file or directory: .*__main__\.py"):
        copy_agent(tmp_path, source)
    for content in ("not = [toml", "[project]\n"):
        (source / "__main__.py").touch()
        (source / "pyproject.toml").write_text(content)
        with pytest.raises(CopyError, match="cannot copy the agent from"):
            copy_agent(tmp_path, source)


def test_folder_that_cannot_be_written_fails_the_command_with_its_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elastic_pytorch_operator", "copy-agent", str(tmp_path / "nothing")]
    failed = subprocess.run(command, text=True, capture_output=True, check=False)
    assert failed.returncode == 1
    assert failed.stderr.startswith("cannot copy the agent from /opt/elastic-pytorch to ")
    assert "Traceback" not in failed.stderr
