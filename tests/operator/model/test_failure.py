from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import (
    Fault,
    describe_end,
    fault_of_pod,
    fault_of_worker,
    record_of,
    root_cause,
)
from elastic_pytorch_operator.model.observed import Failure, PodView

from tests.operator.builders import NOW, a_dead_pod, a_failure, a_pod, an_agent
from tests.operator.event_loop_time import MAX_TURN_CALLS, fits

NCCL_FAILED = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, "
    "NCCL version 2.27.5\n"
)
SYSTEM_ERROR = (
    f"{NCCL_FAILED}ncclSystemError: System call (e.g. socket, malloc) or external library call "
    "failed or device error. \nLast error:\n"
)
TERMINATED = "terminate called after throwing an instance of "


def aborted(traceback: str = "") -> dict[str, Any]:
    return {"exit_code": 134, "signal": "SIGABRT", "exception": "", "traceback": traceback}


@pytest.mark.parametrize(
    ("fault", "message", "fields"),
    [
        # Exceptions of peers' losses, as gloo, NCCL and the c10d store raise them.
        (
            "echo",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
            "by peer [10.244.1.5]:41231",
            {},
        ),
        (
            "echo",
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error: "
            "Connection reset by peer",
            {},
        ),
        ("echo", "RuntimeError: Gloo connectFullMesh failed with SO_ERROR: Connection refused", {}),
        (
            "echo",
            "torch.distributed.DistBackendError: NCCL error in: ncclRemoteError: remote error",
            {},
        ),
        (
            "echo",
            SYSTEM_ERROR + "Call to recv from 10.244.1.5<45763> failed : Connection reset by peer",
            {},
        ),
        ("echo", "torch.distributed.DistNetworkError: The client socket has timed out", {}),
        ("echo", "BrokenPipeError: Broken pipe", {}),
        # A wrong set-up, which all ranks find at once.
        (
            "code",
            NCCL_FAILED + "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
            "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 4000",
            {},
        ),
        (
            "code",
            NCCL_FAILED + "ncclInternalError: Internal check failed.\nLast error:\n"
            "Bootstrap : no socket interface found",
            {},
        ),
        (
            "code",
            SYSTEM_ERROR
            + "Error while creating shared memory segment /dev/shm/nccl-jc5XcA (size 9637888)",
            {},
        ),
        (
            "code",
            NCCL_FAILED + "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
            "Cuda failure 'out of memory'",
            {},
        ),
        # The script's own.
        ("code", "ValueError: boom", {}),
        ("code", "ConnectionError: no database", {}),
        ("code", "AssertionError", {}),
        ("code", "MemoryError: ", {}),
        ("code", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", {}),
        # Signals.
        ("code", "killed", {"exit_code": 139, "signal": "SIGSEGV"}),
        ("outside", "killed", {"exit_code": 137, "signal": "SIGKILL"}),
        (
            "code",
            "the container is out of memory",
            {"exit_code": 137, "signal": "SIGKILL", "exception": "OutOfMemory"},
        ),
        ("outside", "stopped", {"exit_code": 143, "signal": "SIGTERM"}),
        # SIGABRT: what torch has printed before it tells why.
        (
            "echo",
            "killed by SIGABRT",
            aborted(
                "[rank0]:[E713 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective "
                "operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE) ran for 600026 "
                "milliseconds before timing out."
            ),
        ),
        (
            "echo",
            "killed by SIGABRT",
            aborted(
                f"{TERMINATED}'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0 Rank 1] "
                "Process group watchdog thread terminated with exception: NCCL error: remote "
                "process exited or there was a network error, NCCL version 2.21.5\n"
                "ncclRemoteError: A call failed possibly due to a network error"
            ),
        ),
        ("echo", "killed by SIGABRT", aborted(f"{TERMINATED}'gloo::IoException'")),
        (
            "echo",
            f"killed by SIGABRT in train (train.py, line 40)\n{TERMINATED}'c10::DistBackendError'\n"
            "ncclRemoteError: A call failed",
            aborted("Fatal Python error: Aborted"),
        ),
        ("echo", "RuntimeError: gloo: Connection closed by peer", aborted()),
        (
            "code",
            f"killed by SIGABRT\n{TERMINATED}'c10::DistBackendError'\nwhat():  [PG ID 0 Rank 1] "
            "Process group watchdog thread terminated with exception: CUDA error: an illegal "
            "memory access was encountered",
            aborted(),
        ),
        (
            "code",
            "killed by SIGABRT",
            aborted(
                f"{TERMINATED}'c10::Error'\n  what():  CUDA error: an illegal memory access was "
                "encountered"
            ),
        ),
        ("code", "killed by SIGABRT", aborted("free(): invalid pointer")),
    ],
)
def test_fault_of_a_worker(fault: str, message: str, fields: dict[str, Any]) -> None:
    assert fault_of_worker(a_failure(message, **fields)) is Fault(fault)


def test_torchrun_of_the_users_tells_nothing_that_could_be_the_cause() -> None:
    assert "see the log of the pod" in record_of(an_agent("w0", "failed")).message


FOR_ITS_NODE = frozenset({("DisruptionTarget", "True")})
REJECTED = {"exit_code": None, "exit_reason": "UnexpectedAdmissionError"}


@pytest.mark.parametrize(
    ("pod", "spoken", "fault"),
    [
        (a_pod(0), True, None),
        (a_dead_pod(0, exit_code=0, exit_reason="Completed"), True, "code"),
        (a_dead_pod(0, exit_code=0, deleting=True), True, "place"),
        (a_dead_pod(0, exit_code=0, deleting=True, ended_before_deletion=True), True, "code"),
        (a_dead_pod(0, exit_code=0, exit_reason="OOMKilled"), True, "code"),
        (a_dead_pod(0, exit_code=1), True, "code"),
        (a_dead_pod(0, exit_code=137, exit_reason="OOMKilled"), True, "code"),
        (a_dead_pod(0, exit_code=137), True, "outside"),
        (a_dead_pod(0, exit_code=143), True, "outside"),
        (a_dead_pod(0, exit_code=1, disrupted=True), True, "place"),
        (a_dead_pod(0, exit_code=137, exit_reason="Evicted"), True, "outside"),
        (a_dead_pod(0, exit_code=None, exit_reason="Evicted"), False, "outside"),
        (a_dead_pod(0, exit_code=0, exit_reason="DeadlineExceeded"), True, "outside"),
        (a_dead_pod(0, exit_code=137, exit_reason="Evicted", deleting=True), True, "place"),
        (
            a_dead_pod(
                0, exit_code=137, exit_reason="Evicted", disrupted=True, conditions=FOR_ITS_NODE
            ),
            True,
            "place",
        ),
        (a_dead_pod(0, **REJECTED), False, "place"),
        (a_dead_pod(0, exit_code=126), False, "place"),
        (a_dead_pod(0, exit_code=127), False, "place"),
        (a_dead_pod(0, exit_code=128, exit_reason="StartError"), False, "place"),
        (a_dead_pod(0, exit_code=127), True, "code"),
    ],
)
def test_fault_of_a_pod(pod: PodView, spoken: bool, fault: str | None) -> None:
    assert fault_of_pod(pod, spoken=spoken) == fault


def test_exit_code_0_is_no_fault_once_the_agent_has_reported_success() -> None:
    done = a_dead_pod(0, exit_code=0)
    assert fault_of_pod(done, spoken=True, succeeded=True) is None
    assert fault_of_pod(a_dead_pod(0, exit_code=1), spoken=True, succeeded=True) is Fault.CODE


@pytest.mark.parametrize(
    ("pod", "succeeded", "words"),
    [
        (
            a_dead_pod(0, exit_code=0),
            False,
            "but its agent has not reported success; its `command` may hide",
        ),
        (a_dead_pod(0, exit_code=0, exit_reason="Completed"), True, "exit code 0 (Completed)"),
        (
            a_dead_pod(0, exit_code=0, exit_reason="Completed", rendezvous=1),
            False,
            "exit code 0 (Completed)",
        ),
        (a_dead_pod(0, exit_code=3), False, "exit code 3 (Error)"),
        (
            a_dead_pod(0, exit_code=137, exit_reason="Evicted", exit_message="EmptyDir"),
            False,
            "has ended (Evicted: EmptyDir)",
        ),
        (
            a_dead_pod(0, exit_code=137, exit_reason="OOMKilled"),
            False,
            "all its processes and the state in its memory are gone",
        ),
        (
            a_dead_pod(0, exit_code=137, exit_reason="OOMKilled"),
            False,
            "With `singleProcessOOMKill: true` of the kubelet",
        ),
        (
            a_dead_pod(0, exit_code=1, exit_reason="OOMKilled", rendezvous=1),
            False,
            "(OOMKilled): all its processes are gone;",
        ),
    ],
)
def test_end_of_a_pod_in_words(pod: PodView, succeeded: bool, words: str) -> None:
    assert words in describe_end(pod, succeeded=succeeded)


@pytest.mark.parametrize(
    ("message", "traceback", "told"),
    [
        (
            "ValueError: boom",
            "Traceback:\n  step()\nValueError: boom\n",
            "Traceback:\n  step()\nValueError: boom",
        ),
        ("ValueError: boom", "", "ValueError: boom"),
        (
            "killed by SIGABRT\nncclRemoteError",
            "Fatal Python error",
            "killed by SIGABRT\nncclRemoteError\nFatal Python error",
        ),
        (
            "exited with code 3; its last line: bye",
            "hello\nbye\n",
            "exited with code 3; its last line: bye\nhello\nbye",
        ),
    ],
)
def test_cause_is_told_with_all_that_the_agent_knows(
    message: str, traceback: str, told: str
) -> None:
    failure = a_failure(message, traceback=traceback)
    assert record_of(an_agent("w0", "failed", failure=failure)).message == told


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (a_failure("ValueError: boom"), "rank 0 (w0) failed, exit code 1: ValueError: boom"),
        (
            a_failure("gone", exit_code=137, signal="SIGKILL"),
            "rank 0 (w0) failed, killed by SIGKILL: gone",
        ),
        (
            a_failure("killed by SIGABRT in train (t.py, line 4)", exit_code=134, signal="SIGABRT"),
            "rank 0 (w0) failed, killed by SIGABRT in train (t.py, line 4)",
        ),
    ],
)
def test_failure_in_words(failure: Failure, told: str) -> None:
    assert str(record_of(an_agent("w0", "failed", failure=failure))) == told


def test_root_cause_is_the_earliest_that_is_not_an_echo() -> None:
    echo = record_of(
        an_agent(
            "w0",
            "failed",
            failure=a_failure("RuntimeError: gloo: Connection closed by peer", failed_at=NOW - 3),
        )
    )
    mine = record_of(an_agent("w2", "failed", failure=a_failure(failed_at=NOW - 2)))
    assert root_cause([replace(mine, worker="w1", failed_at=NOW - 1), echo, mine]) == mine
    assert root_cause([echo]) is None


@pytest.mark.parametrize(
    "words",
    [
        "nccl",
        "gloo ",
        "store",
        "tcp",
        "connection closed by ",
        "cuda error",
        "instance of 'gloo::",
        "recv",
        "recv from recv",
    ],
)
@pytest.mark.parametrize("fields", [{}, aborted()], ids=["raised", "aborted"])
def test_time_to_judge_a_failure_grows_with_the_length_of_its_words_only(
    words: str, fields: dict[str, Any]
) -> None:
    text = "gloo timed out ncclInternalError " + words * (16_000 // len(words))
    failure = a_failure(message=text, **fields)
    assert fault_of_worker(failure) is not None
    assert fits(lambda: fault_of_worker(failure), 2 * MAX_TURN_CALLS), (
        "the square of the length would take seconds"
    )
