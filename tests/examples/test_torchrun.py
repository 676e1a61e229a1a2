"""The jobs of examples/torchrun, each to its end in local mode."""

import re
from pathlib import Path

import pytest

from tests.local.local_jobs import run_local
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "torchrun"
JOBS = sorted(EXAMPLE.glob("*.yaml"))

PROCESSES = dict.fromkeys(("single-node", "fixed-size", "command", "module", "program"), 2)
PROCESSES["elastic"] = 3


def test_the_readme_shows_every_job() -> None:
    assert {path.stem for path in JOBS} == set(PROCESSES)
    readme = (EXAMPLE / "README.md").read_text()
    assert all(f"[{path.name}]({path.name})" in readme for path in JOBS)
    assert all(f"\n  name: {path.stem}\n" in path.read_text() for path in JOBS)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    done = run_local(tmp_path, path, "--workdir", tmp_path)
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
