import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import elastic_pytorch
import pytest

from tests.paths import ROOT

SCRIPT = ROOT / "tests" / "worker_image" / "scripts" / "crash_points.py"


@pytest.mark.process
def test_death_at_any_point_leaves_a_checkpoint(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-S", str(SCRIPT), str(tmp_path / "folder")],
        env={**os.environ, "PYTHONPATH": str(Path(elastic_pytorch.__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    looks = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(look["right"] for look in looks)
    deaths = [look for look in looks if look["kind"] in ("call", "size") and look["code"] != 0]
    assert len(deaths) >= 150
    assert {look["code"] for look in deaths} == {-signal.SIGKILL, -signal.SIGXFSZ}
    # The one before goes only when the new one is there.
    assert {tuple(look["steps"]) for look in deaths} == {(2, 1), (3, 2, 1), (3, 2)}
    # And the next one is written as if nothing had been.
    assert {tuple(look["steps"]) for look in looks if look["kind"].startswith("after")} == {
        (4, 2),
        (4, 3),
    }

    full = [look for look in looks if look["kind"] == "full" and look["code"] != 0]
    assert len(full) >= 10
    assert {look["code"] for look in full} == {errno.EFBIG}
    assert {(tuple(look["steps"]), look["partials"]) for look in full} == {((2, 1), 0)}
