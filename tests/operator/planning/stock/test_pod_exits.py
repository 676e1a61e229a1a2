"""How a stock worker's pod has ended, by its exit code and the log of torch 2.6 and 2.15."""

import pytest
from elastic_pytorch_operator.planning.stock.pod_exits import Manner, last_words, read_end

from tests.operator.builders import NOW, a_dead_pod
from tests.operator.event_loop_time import MAX_TURN_CALLS, fits

LAUNCH = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/usr/lib/python3/dist-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
./train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_15:10:53
  host      : 6faa678e11e2
  rank      : 1 (local_rank: 0)
  exitcode  : {exit_code} (pid: 61)
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
CHILD_LOG = (
    "E1121 15:10:53.744000 11 torch/distributed/elastic/multiprocessing/api.py:869] failed "
    "(exitcode: 1) local_rank: 0"
)
BOOM = '[rank1]: raise ValueError("boom")\n[rank1]: ValueError: boom'
GLOO = (
    "[rank0]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[127.0.0.1]:1933"
)


def gave_up(said: str, exit_code: int = 1, traceback: str = NO_TRACEBACK) -> str:
    return f"{said}\n{CHILD_LOG}\n{LAUNCH.format(exit_code=exit_code, traceback=traceback)}"


ENDS = [
    (0, "Completed", "", Manner.SUCCEEDED),
    (1, "Error", gave_up(BOOM), Manner.FAILED),
    (1, "Error", gave_up(GLOO), Manner.PEER_LOST),
    (
        1,
        "Error",
        gave_up("r [127.0.0.1]:1933. This is typically caused by a remote worker crashing."),
        Manner.PEER_LOST,
    ),
    (1, "Error", gave_up("", -15, "Signal 15 (SIGTERM) received by PID 61"), Manner.PEER_LOST),
    (1, "Error", gave_up("", -11, "Signal 11 (SIGSEGV) received by PID 61"), Manner.FAILED),
    (
        1,
        "Error",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        Manner.RENDEZVOUS_CLOSED,
    ),
    (
        1,
        "Error",
        "AttributeError: 'NoneType' object has no attribute 'is_failed'",
        Manner.RENDEZVOUS_CLOSED,
    ),
    (
        1,
        "Error",
        "RendezvousConnectionError: The connection to the C10d store has failed.",
        Manner.STORE_UNREACHABLE,
    ),
    (1, "Error", "SignalException: Process 9 got signal: 15", Manner.LOST),
    (1, "Error", "", Manner.FAILED),
    (2, "Error", "torchrun: error: unrecognized arguments: --no-such-option", Manner.BROKEN),
    (128, "StartError", 'exec: "python": executable file not found in $PATH', Manner.NOT_STARTED),
    (137, "OOMKilled", "", Manner.BROKEN),
    (137, "Error", "", Manner.LOST),
    (None, "OutOfcpu", "", Manner.NOT_STARTED),
]


@pytest.mark.parametrize(("exit_code", "reason", "message", "manner"), ENDS)
def test_manner_of_an_end(exit_code: int, reason: str, message: str, manner: Manner) -> None:
    assert (
        read_end(
            a_dead_pod(0, exit_code=exit_code, exit_reason=reason, exit_message=message), NOW
        ).manner
        is manner
    )


@pytest.mark.parametrize("exit_code", [None, 1])
def test_worker_that_the_cluster_has_ended_is_lost(exit_code: int | None) -> None:
    assert read_end(a_dead_pod(0, exit_code=exit_code, disrupted=True), NOW).manner is Manner.LOST


def test_pod_that_is_being_deleted_was_lost_whatever_it_says() -> None:
    assert (
        read_end(a_dead_pod(0, exit_message=gave_up(BOOM), deleting=True), NOW).manner
        is Manner.LOST
    )


def test_pod_that_had_ended_before_its_deletion_is_judged_by_its_end() -> None:
    asked_later = {"deleting": True, "ended_before_deletion": True}
    assert (
        read_end(a_dead_pod(0, exit_message=gave_up(BOOM), **asked_later), NOW).manner
        is Manner.FAILED
    )
    assert read_end(a_dead_pod(0, exit_code=0, **asked_later), NOW).manner is Manner.SUCCEEDED
    assert read_end(a_dead_pod(0, exit_code=0, deleting=True), NOW).manner is Manner.LOST


def test_failure_is_told_in_the_scripts_own_words() -> None:
    end = read_end(a_dead_pod(1, exit_message=gave_up(BOOM)), NOW)
    assert end.gave_up
    assert (end.record.message, end.record.rank, end.record.exit_code, end.record.pid) == (
        BOOM,
        1,
        1,
        61,
    )


def test_number_that_the_status_does_not_take_is_not_read() -> None:
    numbers = "  rank      : 12345678901\n  exitcode  : -12345678901 (pid: 12345678901)\n"
    record = read_end(a_dead_pod(0, exit_message=f"{numbers}{gave_up(BOOM)}"), NOW).record
    assert (record.rank, record.exit_code, record.pid) == (1, 1, 61)


@pytest.mark.parametrize(
    "begun",
    ["  traceback : Traceback \n", "SignalException: ", "  exitcode  : 1 (", "E1121 failed ("],
)
def test_what_begins_again_and_again_is_not_searched_as_often(begun: str) -> None:
    pod = a_dead_pod(0, exit_message=(begun * 4096)[:4096])
    assert fits(lambda: read_end(pod, NOW), MAX_TURN_CALLS / 40), "a thousand pods may say so"


def test_recorded_traceback_is_preferred() -> None:
    recorded = (
        "Traceback (most recent call last):\n    raise ValueError('boom')\n  ValueError: boom\n"
    )
    assert last_words(gave_up("noise", traceback=recorded)).endswith("ValueError: boom")
    assert "noise" not in last_words(gave_up("noise", traceback=recorded))


def test_only_words_that_name_an_exception_or_a_signal_are_telling() -> None:
    for said, telling in ((BOOM, True), ("KeyboardInterrupt", True), ("step 5\nstep 6", False)):
        assert read_end(a_dead_pod(0, exit_message=gave_up(said)), NOW).telling is telling


def test_signal_is_named() -> None:
    message = gave_up("", -11, "Signal 11 (SIGSEGV) received by PID 61")
    record = read_end(a_dead_pod(0, exit_message=message), NOW).record
    assert (record.signal, record.exit_code) == ("SIGSEGV", 139)


def test_what_is_cut_off_at_the_front_is_still_understood() -> None:
    tail = gave_up(BOOM)[-600:]
    assert read_end(a_dead_pod(0, exit_message=tail), NOW).gave_up
    assert last_words(tail)


def test_without_a_word_the_kubelets_has_to_do() -> None:
    assert (
        "OOMKilled"
        in read_end(a_dead_pod(0, exit_code=137, exit_reason="OOMKilled"), NOW).record.message
    )
