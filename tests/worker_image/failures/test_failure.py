import json
import os
import time
from pathlib import Path

import pytest
from elastic_pytorch.failures.failure import Failure, describe, write_termination_message


def failed(exit_code: int, **more: str) -> Failure:
    return describe(local_rank=0, rank=3, pid=57, exit_code=exit_code, **more)


@pytest.fixture
def error(tmp_path: Path) -> Path:
    return tmp_path / "error.json"


def raised(message: str, **extra: str) -> str:
    """An error file, as torch's own `@record` writes it."""
    return json.dumps({"message": {"message": message, "extraInfo": extra}})


def test_an_error_file_says_what_was_raised(error: Path) -> None:
    told = "ValueError: boom at step 5"
    error.write_text(raised(told, py_callstack=f"Traceback…\n{told}\n", timestamp="1795252352"))
    facts = failed(1, error_file=str(error)).to_json()
    assert 0 <= facts.pop("ageSeconds") < 5
    assert facts == {
        "rank": 3,
        "pid": 57,
        "exitCode": 1,
        "signal": "",
        "exception": "ValueError",
        "message": told,
        "traceback": f"Traceback…\n{told}\n",
    }


@pytest.mark.parametrize("character", ["x", "\\", "\n", "ü", "\ud800", "😀", '"'])
def test_error_file_of_megabytes_keeps_the_class_and_the_first_words(
    error: Path, character: str
) -> None:
    words = "ValueError: missing keys: " + character * 2_000_000
    error.write_text(raised(words, py_callstack=f"Traceback (most recent call last):\n{words}\n"))
    facts = failed(1, error_file=str(error)).to_json()
    assert facts["message"].startswith("ValueError: missing keys: ")
    assert facts["exception"] == "ValueError"
    assert len(facts["message"].encode()) >= 900
    assert len(json.dumps(facts)) < 64 * 1024, "the operator takes a line"


def test_a_word_of_kilobytes_is_no_name_of_an_exception(error: Path) -> None:
    word = "x" * 60_000
    error.write_text(raised(word, py_callstack="Traceback…\n"))
    of_file, of_stderr = failed(1, error_file=str(error)), failed(1, stderr=f"  at\n{word}\n")
    for failure in (of_file, of_stderr):
        assert len(json.dumps(failure.to_json())) < 8 * 1024, "a part of the line that is taken"


@pytest.mark.parametrize(
    ("exit_code", "signal", "message"),
    [
        (-9, "SIGKILL", "killed by SIGKILL"),
        (-11, "SIGSEGV", "killed by SIGSEGV"),
        (-63, "signal 63", "killed by signal 63"),
        (3, "", "exited with code 3"),
    ],
)
def test_without_an_error_file_the_exit_code_speaks(
    exit_code: int, signal: str, message: str
) -> None:
    failure = failed(exit_code, error_file="/nowhere/error.json")
    assert (failure.signal, failure.message, failure.exception) == (signal, message, "")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '"text"',
        "{}",
        '{"message": {}}',
        '{"message": null',
        "\x00\xff",
        "[" * 100_000,
    ],
)
def test_an_error_file_that_is_none_is_passed_over(error: Path, content: str) -> None:
    error.write_text(content)
    assert failed(1, error_file=str(error)).message == "exited with code 1"


def test_a_plain_message_is_taken(error: Path) -> None:
    error.write_text('{"message": "no space left"}')
    assert failed(1, error_file=str(error)).message == "no space left"


def test_long_texts_are_cut_between_characters(error: Path) -> None:
    error.write_text(raised("E: " + "ö" * 5000, py_callstack="ä" * 5000 + "end"))
    failure = failed(1, error_file=str(error))
    assert len(failure.traceback.encode()) <= 2048
    assert failure.traceback.endswith("äend")
    assert len(failure.message.encode()) <= 1024
    assert set(failure.message[3:]) == {"ö"}


def test_redirected_stderr_serves_as_traceback(tmp_path: Path) -> None:
    stderr = tmp_path / "stderr.log"
    stderr.write_text(
        "x" * 5000 + "\nterminate called\nExtension modules: " + "numpy" * 1000 + "\n"
    )
    assert failed(-6, stderr_file=str(stderr)).traceback.endswith("\nterminate called\n")
    assert failed(-6, stderr_file=str(stderr)).message == "killed by SIGABRT\nterminate called"


def test_the_termination_message_begins_with_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "termination-log"
    monkeypatch.setenv("ELASTIC_PYTORCH_TERMINATION_LOG", str(log))
    log.write_text("what was there before " * 1000)
    write_termination_message("ValueError: ü boom", "ä" * 5000 + "\nValueError: ü boom\n")
    written = log.read_bytes()
    assert len(written) <= 4096
    assert written.decode().startswith("ValueError: ü boom\nä")
    assert written.decode().endswith("ValueError: ü boom")


def test_no_termination_log_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_PYTORCH_TERMINATION_LOG", str(tmp_path / "nothing"))
    write_termination_message("message")
    assert not (tmp_path / "nothing").exists()


def test_last_words_say_what_the_exit_code_does_not() -> None:
    stderr = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 3\n'
        "[rank1]: ValueError: boom\nbye\n"
    )
    assert failed(1, stderr=stderr).message == "ValueError: boom"
    assert failed(1, stderr=stderr).exception == "ValueError"
    assert "[rank1]" not in failed(1, stderr=stderr).traceback
    assert failed(3, stderr=stderr).message == "exited with code 3; its last line on stderr: bye"
    assert failed(3, stderr="\n\n").message == "exited with code 3"
    crashed = (
        "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
        '  File "t.py", line 3 in step\n'
    )
    assert failed(-11, stderr=crashed).message == "killed by SIGSEGV in step (t.py, line 3)"
    assert failed(-9, stderr="anything").message == "killed by SIGKILL"


FRAMES = "".join(
    f"frame #{i}: "
    "c10d::ProcessGroupNCCL::watchdogHandler() + 0x890 (0x7f5a4441d7d0 in libtorch_cuda.so)\n"
    for i in range(40)
)
WATCHDOG = (
    "[PG ID 0 PG GUID 0(default_pg) "
    "Rank 1] Process group watchdog thread terminated with exception: "
)
# What torch writes before faulthandler does, and what comes then: stacks of all threads, and the
# names of all modules.
LOGGED = "[rank1]:[E713 23:11:33.123 ProcessGroupNCCL.cpp:629] "
CRASH = (
    "Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n"
    "  <no Python frame>\n\n"
    'Thread 0x00007e (most recent call first):\n  File "train.py", line 40 in train\n'
    + "".join(
        f'\nThread 0x{i:05} (most recent call first):\n  File "threading.py", line 331 in wait\n'
        for i in range(100)
    )
    + "\nExtension modules: "
    + ", ".join(f"numpy.module{i}" for i in range(500))
    + " (total: 500)\n"
)


WHY = (
    f"{WATCHDOG}NCCL error: remote process exited or there was a network error, "
    "NCCL version 2.21.5",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.",
    "Last error:",
    "socketProgress: Connection closed by remote peer 10.244.1.5<41231>",
)


@pytest.mark.parametrize("crash", [CRASH, ""], ids=["faulthandler", "without"])
def test_reason_of_an_abort_survives_the_noise_after_it(crash: str) -> None:
    before = (
        f"loss 3.5\n{LOGGED}{WHY[0]}\n"
        f"{LOGGED}To avoid data inconsistency, we are taking the entire process down.\n"
    )
    thrown = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  "
        + "\n".join(WHY)
        + "\n"
    )
    where = "Exception raised from checkTimeout at ProcessGroupNCCL.cpp:632 (most recent first):\n"
    failure = failed(-6, stderr=before + thrown + where + FRAMES + "\n" + crash)
    first, *lines = failure.message.splitlines()
    assert first == "killed by SIGABRT" + (" in train (train.py, line 40)" if crash else "")
    told = "\n".join(lines)
    for line in (*WHY, "terminate called after throwing an instance of 'c10::DistBackendError'"):
        assert line in told or line[:200] in told, told
    assert "frame #" not in told
    assert "Exception raised" not in told
    assert len(failure.message) <= 1024
    if crash:
        assert failure.traceback.startswith("Fatal Python error: Aborted")


def test_torch_repeats_itself_and_the_message_does_not() -> None:
    logged = (
        f"{LOGGED}{WATCHDOG}NCCL error: unhandled cuda error, NCCL version 2.21.5\n"
        "ncclUnhandledCudaError: Call to CUDA failed.\n"
    )
    assert failed(-6, stderr=logged * 50).message.count("ncclUnhandledCudaError") == 1


def test_failure_is_as_old_as_its_error_file(error: Path) -> None:
    error.write_text(raised("ValueError: boom"))
    os.utime(error, (time.time() - 5000, time.time() - 5000))
    assert 5000 <= failed(1, error_file=str(error)).to_json()["ageSeconds"] < 6000
    os.utime(error, (time.time() + 5000, time.time() + 5000))  # somebody has set the clock
    assert failed(1, error_file=str(error)).to_json()["ageSeconds"] < 1000
