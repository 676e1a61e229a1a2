"""The digits example as a job in local mode."""

import re
from pathlib import Path

import pytest
import yaml

from tests.local.local_jobs import run_local
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "digits"
EPOCH = re.compile(r"epoch (\d+)/\d+  step (\d+)  loss [\d.]+  accuracy ([\d.]+)")


@pytest.mark.process
@pytest.mark.long
def test_the_job_learns_to_read_in_local_mode(tmp_path: Path) -> None:
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    job["spec"]["template"]["spec"]["containers"][0]["args"] += ["--epochs", "5"]
    folder = tmp_path / "examples" / EXAMPLE.name
    folder.mkdir(parents=True)
    for path in EXAMPLE.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    done = run_local(tmp_path, folder / "job.yaml", "--workdir", "work")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    output = done.stdout
    assert "start at step 0  epoch 0  workers 3" in output
    accuracies = [float(accuracy) for _, _, accuracy in EPOCH.findall(output)]
    assert len(accuracies) == 5
    assert accuracies[-1] > 0.9
