from pathlib import Path

import pytest
from elastic_pytorch.processes.held_exit import VARIABLE

from tests.worker_image.processes.test_run_script import as_worker, run

pytestmark = pytest.mark.process

THREAD = """
import threading, time
def beat():
    time.sleep({seconds})
threading.Thread(target=beat, name="heart").start()
"""
HANDLER = """
import atexit, time
@atexit.register
def send_the_rest():
    time.sleep({seconds})
"""
FOREVER = 3600


@pytest.mark.parametrize(
    ("source", "held"),
    [
        (THREAD, "the thread 'heart' at "),
        (THREAD + "threading.Thread(target=beat, name='lung').start()", "threads 'heart' at "),
        (HANDLER, "an exit handler or a file, at "),
    ],
    ids=["thread", "threads", "exit handler"],
)
@pytest.mark.parametrize(
    ("end", "code"), [("raise ValueError('boom')", 1), ("raise SystemExit(7)", 7)]
)
def test_failed_script_is_ended(
    tmp_path: Path, source: str, held: str, end: str, code: int
) -> None:
    (tmp_path / "script.py").write_text(source.format(seconds=FOREVER) + f"\n{end}\n")
    found = run(tmp_path, as_worker("script", "script.py"), **{VARIABLE: "0.5"})
    assert found.code == code
    assert f"has failed 0.5 s ago, and its process still waits for {held}" in found.err
    assert "script.py:4 in beat" in found.err or "script.py:5 in send_the_rest" in found.err
    if code == 1:
        assert found.error["message"]["message"] == "ValueError: boom", (
            "the cause stays what it was"
        )


@pytest.mark.parametrize("source", [THREAD, HANDLER], ids=["thread", "exit handler"])
def test_script_that_has_succeeded_is_waited_for(tmp_path: Path, source: str) -> None:
    (tmp_path / "script.py").write_text(source.format(seconds=2))
    found = run(tmp_path, as_worker("script", "script.py"), **{VARIABLE: "0.2"})
    assert found.code == 0
    assert "has ended 0.2 s ago, and its process waits for " in found.err


@pytest.mark.parametrize("limit", ["30", "", "soon", "nan", "-1", "1e300"])
def test_exit_within_the_time_is_not_reported(tmp_path: Path, limit: str) -> None:
    (tmp_path / "script.py").write_text(THREAD.format(seconds=0.5) + "\n1 / 0\n")
    found = run(tmp_path, as_worker("script", "script.py"), **{VARIABLE: limit})
    assert found.code == 1
    assert "waits for" not in found.err
