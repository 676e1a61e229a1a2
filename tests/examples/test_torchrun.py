"""The jobs of examples/torchrun, each to its end in local mode."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.job_schema import VALIDATOR
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "torchrun"
JOBS = sorted(EXAMPLE.glob("*.yaml"))

PROCESSES = dict.fromkeys(("single-node", "fixed-size", "command", "module", "program"), 2)
PROCESSES["elastic"] = 3
EACH_JOB = pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)


def test_the_readme_shows_every_job() -> None:
    assert {path.stem for path in JOBS} == set(PROCESSES)
    readme = (EXAMPLE / "README.md").read_text()
    assert all(f"[{path.name}]({path.name})" in readme for path in JOBS)


@EACH_JOB
def test_a_job_is_as_the_api_wants_it(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    VALIDATOR.validate(manifest)
    assert manifest["metadata"]["name"] == path.stem


@pytest.mark.process
@pytest.mark.long
@EACH_JOB
def test_a_job_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elastic_pytorch_local", str(path), "--workdir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    world = PROCESSES[path.stem]
    assert {
        int(rank) for rank in re.findall(rf"rank (\d+) of {world}, local rank", done.stdout)
    } == set(range(world))
    losses = [
        float(loss)
        for loss in re.findall(r"epoch \d+ of 20, workers \d, loss ([\d.]+)", done.stdout)
    ]
    assert losses[-1] < 0.1 < losses[0]
