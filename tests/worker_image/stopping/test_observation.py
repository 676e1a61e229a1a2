"""Processes that are lost in a call of C between the steps of a stop, and their observer."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from elastic_pytorch.stopping.observation import StopObserver

from tests.waiting import until

pytestmark = pytest.mark.process

SCRIPT = """
import ctypes, signal, sys, threading, time
from elastic_pytorch.stopping.answers import answer_stops

def wait_in_c(seconds):
    mutex, until = ctypes.create_string_buffer(64), time.time() + seconds
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_timedlock(mutex, (ctypes.c_long * 2)(int(until), 0))

def handler(*_):
    if sys.argv[1] == "saves":
        print("saves", flush=True)
        wait_in_c(4)
        sys.exit(0)
    told.set()

libc, told = ctypes.CDLL(None), threading.Event()
answer_stops()
signal.signal(signal.SIGTERM, handler)
print("runs", flush=True)
if sys.argv[1] == "hangs before the signal":
    sys.stdin.readline()
while sys.argv[1] != "hangs before the signal" and not told.is_set():
    time.sleep(0.01)
print("hangs", flush=True)
wait_in_c(10**6)
"""


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """Runs the script in the way of the parameter, and has written its first line."""
    command = [sys.executable, "-c", SCRIPT, request.param]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        _read(started, "runs")
        yield started
        started.kill()


@pytest.mark.parametrize("process", ["hangs before the signal"], indirect=True)
def test_a_process_that_hangs_between_its_first_stack_and_the_signal_is_found(
    process: subprocess.Popen[str],
) -> None:
    observer = StopObserver([process.pid], signal.SIGTERM)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    _read(process, "hangs")
    process.terminate()
    _wait_until_found(observer)


@pytest.mark.parametrize("process", ["hangs after its handler"], indirect=True)
def test_a_process_that_hangs_after_its_handler_before_it_is_observed_is_found(
    process: subprocess.Popen[str],
) -> None:
    observer = StopObserver([process.pid], signal.SIGTERM)
    process.terminate()
    _read(process, "hangs")
    _wait_until_found(observer)


@pytest.mark.parametrize("process", ["saves"], indirect=True)
def test_a_process_whose_handler_runs_before_it_is_observed_has_its_time(
    process: subprocess.Popen[str],
) -> None:
    observer = StopObserver([process.pid], signal.SIGTERM)
    process.terminate()
    _read(process, "saves")
    while process.poll() is None:
        assert not observer.find_stuck()
        time.sleep(0.05)
    assert process.returncode == 0


def _read(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None and process.stdout.readline() == f"{line}\n"
    time.sleep(0.5)  # from the line to the call of C


def _wait_until_found(observer: StopObserver) -> None:
    ((_, stack),) = until(observer.find_stuck)
    assert "in wait_in_c" in stack.partition("\n")[0]
