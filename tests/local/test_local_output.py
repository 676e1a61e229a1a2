"""What pods of local mode print: of any shape, and read by anybody or by none."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.local_jobs import ENVIRONMENT
from tests.operator.builders import a_manifest

pytestmark = pytest.mark.process


def local(
    folder: Path, script: str, stdin: int = subprocess.DEVNULL, **size: int
) -> "subprocess.Popen[str]":
    """A job of one pod that runs a shell script without the agent."""
    container = {"name": "pytorch", "image": "any", "command": ["sh", "-c", script]}
    manifest = a_manifest(
        "prints",
        replicas=1,
        minimum=None,
        maximum=None,
        failurePolicy={"maxFailures": 0},
        template={"spec": {"containers": [container]}},
        **size,
    )
    (folder / "job.yaml").write_text(json.dumps(manifest))
    command = [sys.executable, "-m", "elastic_pytorch_local", str(folder / "job.yaml")]
    return subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_bar_of_megabytes_does_not_end_the_pod(tmp_path: Path) -> None:
    with local(
        tmp_path, r"yes '50 %' | head -c 3000000 | tr '\n' '\r'; echo done; exit 3"
    ) as process:
        out, err = process.communicate(timeout=120)
    assert "| done" in out or "| 50 %" in out
    assert "has failed" in err
    assert "exit code 3" in err


def test_output_that_is_no_longer_read_ends_the_job(tmp_path: Path) -> None:
    with local(tmp_path, "while true; do echo on; sleep 0.1; done") as process:
        assert process.stdout is not None and process.stderr is not None
        while "| on" not in process.stdout.readline():
            pass
        process.stdout.close()
        assert "stopping prints" in process.stderr.read()
        assert process.wait(60) == 130


def test_neither_stream_of_a_pod_writes_into_a_line_of_the_other(tmp_path: Path) -> None:
    with local(tmp_path, "printf begin; echo other >&2; echo -end; exit 3") as process:
        out, _ = process.communicate(timeout=120)
    assert {line.partition(" | ")[2] for line in out.splitlines()} == {"begin-end", "other"}


def test_size_is_typed_and_ctrl_c_ends_the_job_in_one_sentence(tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    script = (
        "trap 'echo last words; exit' TERM; echo I am $HOSTNAME; while true; do sleep 0.1; done"
    )
    with local(tmp_path, script, end, minReplicas=1, maxReplicas=2) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        os.write(terminal, b"many\n2\n")
        while "prints-worker-1" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    os.close(terminal)
    os.close(end)
    assert process.returncode == 130
    assert "many is no size of this job: type a number from 1 to 2" in err
    assert (out, err.splitlines()[-1].partition("  ")[2]) == ("", "stopping prints")
