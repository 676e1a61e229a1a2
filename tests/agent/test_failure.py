import json
from pathlib import Path

import pytest
from elastic_pytorch.failure import Failure, describe, write_termination_message


def failed(exit_code: int, **more: str) -> Failure:
    return describe(local_rank=0, rank=3, pid=57, exit_code=exit_code, **more)


def test_an_error_file_says_what_was_raised(tmp_path: Path) -> None:
    error = tmp_path / "error.json"
    extra = {"py_callstack": "Traceback…\nValueError: boom at step 5\n", "timestamp": "1795252352"}
    error.write_text(json.dumps({"message": {"message": "ValueError: boom at step 5", "extraInfo": extra}}))
    facts = failed(1, error_file=str(error)).to_json()
    assert 0 <= facts.pop("ageSeconds") < 5
    assert facts == {
        "localRank": 0,
        "rank": 3,
        "pid": 57,
        "exitCode": 1,
        "signal": "",
        "exception": "ValueError",
        "message": "ValueError: boom at step 5",
        "traceback": "Traceback…\nValueError: boom at step 5\n",
    }


@pytest.mark.parametrize(
    ("exit_code", "signal", "message"),
    [
        (-9, "SIGKILL", "killed by SIGKILL"),
        (-11, "SIGSEGV", "killed by SIGSEGV"),
        (-63, "signal 63", "killed by signal 63"),
        (3, "", "exited with code 3"),
    ],
)
def test_without_an_error_file_the_exit_code_speaks(exit_code: int, signal: str, message: str) -> None:
    failure = failed(exit_code, error_file="/nowhere/error.json")
    assert (failure.signal, failure.message, failure.exception) == (signal, message, "")


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "{}", '{"message": {}}', '{"message": null', "\x00\xff"])
def test_an_error_file_that_is_none_is_passed_over(tmp_path: Path, content: str) -> None:
    error = tmp_path / "error.json"
    error.write_text(content)
    assert failed(1, error_file=str(error)).message == "exited with code 1"


def test_a_plain_message_is_taken(tmp_path: Path) -> None:
    error = tmp_path / "error.json"
    error.write_text('{"message": "no space left"}')
    assert failed(1, error_file=str(error)).message == "no space left"


def test_long_texts_are_cut_between_characters(tmp_path: Path) -> None:
    error = tmp_path / "error.json"
    extra = {"py_callstack": "ä" * 5000 + "end"}
    error.write_text(json.dumps({"message": {"message": "E: " + "ö" * 5000, "extraInfo": extra}}))
    failure = failed(1, error_file=str(error))
    assert len(failure.traceback.encode()) <= 2048
    assert failure.traceback.endswith("äend")
    assert len(failure.message.encode()) <= 1024
    assert set(failure.message[3:]) == {"ö"}


def test_redirected_stderr_serves_as_traceback(tmp_path: Path) -> None:
    stderr = tmp_path / "stderr.log"
    stderr.write_text("x" * 5000 + "\nterminate called\nExtension modules: " + "numpy" * 1000 + "\n")
    assert failed(-6, stderr_file=str(stderr)).traceback.endswith("\nterminate called\n")


def test_the_termination_message_begins_with_the_message(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.write_text("what was there before " * 1000)
    write_termination_message(str(log), "ValueError: ü boom", "ä" * 5000 + "\nValueError: ü boom\n")
    written = log.read_bytes()
    assert len(written) <= 4096
    assert written.decode().startswith("ValueError: ü boom\nä")
    assert written.decode().endswith("ValueError: ü boom")


def test_no_termination_log_is_made(tmp_path: Path) -> None:
    write_termination_message(str(tmp_path / "nothing"), "message")
    assert not (tmp_path / "nothing").exists()


def test_last_words_say_what_the_exit_code_does_not() -> None:
    raised = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 3\n[rank1]: ValueError: boom\nbye\n'
    assert failed(1, stderr=raised).message == "ValueError: boom"
    assert failed(1, stderr=raised).exception == "ValueError"
    assert "[rank1]" not in failed(1, stderr=raised).traceback
    assert failed(3, stderr=raised).message == "exited with code 3; its last line on stderr: bye"
    assert failed(3, stderr="\n\n").message == "exited with code 3"
    crashed = 'Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n  File "t.py", line 3 in step\n'
    assert failed(-11, stderr=crashed).message == "killed by SIGSEGV in step (t.py, line 3)"
    assert failed(-9, stderr="anything").message == "killed by SIGKILL"
