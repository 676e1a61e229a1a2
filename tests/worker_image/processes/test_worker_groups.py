import contextlib
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from elastic_pytorch.processes import worker_groups
from elastic_pytorch.processes.worker_groups import kill_groups

from tests.waiting import until

pytestmark = pytest.mark.process

CREATE = """
import os, sys, time
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(sys.argv[1], create=True, size=4096)
if os.fork():
    print(flush=True)
time.sleep(600)
"""


def create(name: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", CREATE, name], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


@pytest.mark.parametrize("leader_is_gone", [False, True])
def test_memory_is_unlinked_when_its_group_is_killed(
    leader_is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_groups, "UNLINK_SECONDS", 60.0)
    names = [f"elastic_pytorch_test_{uuid.uuid4().hex}" for _ in range(2)]
    processes = [create(name) for name in names]
    if leader_is_gone:
        for process in processes:
            process.kill()
            process.wait()
    assert all((Path("/dev/shm") / name).exists() for name in names)
    kill_groups([process.pid for process in processes])
    assert not any((Path("/dev/shm") / name).exists() for name in names)
    for process in processes:
        process.wait()
        with contextlib.closing(process.stdout):
            until(
                lambda process=process: process.stdout.read() == b"",
                "the end of all that the group was",
            )


def test_groups_without_memory_and_groups_that_are_gone() -> None:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    kill_groups([process.pid])
    assert process.wait() == -9
    kill_groups([process.pid])
