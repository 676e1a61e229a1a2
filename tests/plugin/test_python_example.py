import importlib.util
from types import ModuleType
from typing import Any

import pytest

from tests.paths import ROOT
from tests.plugin.recorded_cluster import BREAK, RecordedCluster, recorded

EXAMPLE = ROOT / "examples" / "python-client" / "train_and_wait.py"
MANIFEST = str(ROOT / "examples" / "char-lm" / "job.yaml")


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_and_wait", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seen(name: str, **changes: Any) -> dict[str, Any]:
    job = recorded(name)["job"]
    job["metadata"] |= {"name": "char-lm", "uid": "new"}
    job["status"] |= changes
    return job


def test_a_job_that_completes(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = RecordedCluster()
    done = [{"type": "Complete", "status": "True", "reason": "WorkersSucceeded", "message": "done"}]
    cluster.script = [
        seen("young"),
        BREAK,
        seen("whole"),
        seen("whole", conditions=done, state="Complete"),
    ]
    assert example.main([MANIFEST, "--workers", "4"], cluster) == 0
    assert ("scale", "char-lm", "4") in cluster.calls
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == "Running 3 processes step 84/800 loss 2.566".split()  # noqa: SIM905
    assert lines[-1].startswith("Complete")


def test_a_job_that_fails(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = RecordedCluster()
    worker = recorded("failed")["job"]["status"]["workers"][0]["name"]
    cluster.logs[worker] = ["2026-01-01T00:00:00Z its last words"]
    cluster.script = [seen("young"), seen("failed")]
    assert example.main([MANIFEST], cluster) == 1
    errors = capsys.readouterr().err
    assert "TooManyFailures" in errors
    assert f"{worker}: its last words" in errors


def test_a_manifest_that_is_none(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main([str(EXAMPLE)], RecordedCluster()) == 1
    assert capsys.readouterr().err.count("\n") == 1
