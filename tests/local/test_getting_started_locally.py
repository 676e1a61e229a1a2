"""The job of docs/use/getting-started.md, whose script a ConfigMap has, in local mode."""

from pathlib import Path

import pytest

from tests.documentation import blocks
from tests.local.local_jobs import run_local
from tests.paths import ROOT

pytestmark = [pytest.mark.process, pytest.mark.long]

PAGE = ROOT / "docs" / "use" / "getting-started.md"


def test_job_runs_to_its_end_with_the_command_of_the_page(tmp_path: Path) -> None:
    """With a shorter training."""
    options = ("job.yaml", "--configmap", "first=train.py")
    assert f"-m elastic_pytorch_local {' '.join(options)}\n" in PAGE.read_text()
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text.replace("STEPS = 300", "STEPS = 10"))
    done = run_local(tmp_path, *options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert all(f"rank {rank} is done" in done.stdout for rank in range(3))
