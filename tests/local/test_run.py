from pathlib import Path

import pytest
import yaml
from elastic_pytorch_local.run import describe_progress, run_local

from tests.operator.builders import a_manifest
from tests.operator.simulation import running


def test_log_says_how_many_workers_are_ready() -> None:
    assert describe_progress({}) == "Pending: round 0, 0 workers ready"
    assert describe_progress(running().job.status) == "Running: round 1, 3 workers ready"


async def test_local_mode_asks_for_the_number_of_workers_as_the_api_server_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(a_manifest(replicas=None)))
    assert await run_local([path]) == 2
    assert "spec.replicas: set the number of workers" in capsys.readouterr().err
