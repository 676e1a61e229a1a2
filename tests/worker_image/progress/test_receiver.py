import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch import report
from elastic_pytorch.progress.receiver import (
    MAX_LOCAL_RANKS,
    Progress,
    ProgressReceiver,
    add_work,
    parse_report,
)
from elastic_pytorch.progress.report import (
    REPORT_SOCKET,
    report_failed_saves,
    report_group_formed,
    report_saving,
    report_written,
)
from elastic_pytorch.progress.work_windows import WorkWindows
from elastic_pytorch.socket_folder import LOOK_SECONDS

from tests.waiting import WAIT_SECONDS, until


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressReceiver]:
    made = ProgressReceiver(window_seconds=0.2)
    monkeypatch.setenv(REPORT_SOCKET, made.path)
    made.start_round()
    yield made
    made.close()


def test_the_largest_step_and_the_newest_of_the_rest_count(receiver: ProgressReceiver) -> None:
    report(step=7, total=100, loss=0.5, checkpoint_step=5)
    report(step=6, loss=0.25)
    until(lambda: receiver.current() == Progress(7, 7, 100, 0.25, 5))
    told = {
        "step": 7,
        "firstStep": 7,
        "total": 100,
        "loss": 0.25,
        "checkpointStep": 5,
        "checkpoints": None,
    }
    told |= {"startedAgeSeconds": None, "formedAgeSeconds": None}
    assert receiver.current().to_json() == told


def test_a_new_round_forgets_all_but_the_checkpoint(receiver: ProgressReceiver) -> None:
    receiver.note_checkpoints(3)
    report(step=7, checkpoint_step=5)
    until(lambda: receiver.current().step == 7)
    receiver.start_round()
    assert receiver.current() == Progress(checkpoint_step=5, checkpoints=3)
    receiver.note_written(9, 1.25)
    receiver.start_round()
    assert receiver.current() == Progress(checkpoint_step=9, checkpoints=3, checkpoint_seconds=1.25)
    report(step=6)
    until(lambda: receiver.current().step == 6)


def test_new_round_takes_no_time_from_the_workers(receiver: ProgressReceiver) -> None:
    began = time.process_time()
    receiver.start_round()
    time.sleep(LOOK_SECONDS)
    assert time.process_time() - began < LOOK_SECONDS / 4


def test_how_long_a_checkpoint_has_taken_is_told(receiver: ProgressReceiver) -> None:
    report_written(8, 12.3456)
    until(lambda: receiver.current().checkpoint_step == 8)
    assert (receiver.current().to_json() or {})["checkpointSeconds"] == 12.346


def test_wait_for_the_last_checkpoint_is_timed_from_its_first_report(
    receiver: ProgressReceiver,
) -> None:
    report_saving(True)
    until(lambda: receiver.current().saving_since is not None)
    began = receiver.current().saving_since
    assert began is not None
    report_saving(True)
    report(step=7)
    until(lambda: receiver.current().step == 7)
    assert (receiver.current().to_json(began + 2.5) or {})["savingSeconds"] == 2.5
    report_saving(False)
    until(lambda: receiver.current().saving_since is None)
    assert "savingSeconds" not in (receiver.current().to_json() or {})


def test_failed_saves_are_told_until_another_checkpoint_is_there(
    receiver: ProgressReceiver,
) -> None:
    def told() -> tuple[Any, Any]:
        fields = receiver.current().to_json() or {}
        return fields.get("failedSaves"), fields.get("saveError")

    report(step=7, checkpoint_step=5)
    report_failed_saves(3, "\udfff" + "\u00fc" * 1000)
    until(lambda: told() == (3, "?" + "\u00fc" * 199))
    report(step=8, checkpoint_step=5)
    until(lambda: receiver.current().step == 8)
    assert told()[0] == 3, "it is the same checkpoint"
    report(step=9, checkpoint_step=9)
    until(lambda: receiver.current().step == 9)
    assert told() == (None, None)
    report_failed_saves(1, "full")
    until(lambda: told() == (1, "full"))
    receiver.note_written(10, 0.5)
    assert told() == (None, None)
    report_failed_saves(1, "full")
    until(lambda: told() == (1, "full"))
    receiver.start_round()
    assert told() == (None, None)


def test_work_of_each_process_is_told_in_windows_of_the_round(
    receiver: ProgressReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def windows() -> int:
        work = receiver.current().work
        return 0 if work is None else work.windows

    def until_windows(count: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while windows() < count:
            assert time.monotonic() < deadline
            for local_rank, seconds in (("0", 0.25), ("1", 0.5)):
                monkeypatch.setenv("LOCAL_RANK", local_rank)
                report(work_seconds=seconds, step_seconds=1.0)
            time.sleep(0.05)

    report(step=1, work_seconds=3.0)  # without the time of the step it tells nothing
    until_windows(1)
    told = receiver.current().to_json()
    assert told is not None
    assert {
        "workWindows": 1,
        "workSeconds": [0.25, 0.5],
        "stepSeconds": 1.0,
    }.items() <= told.items()
    receiver.start_round()
    assert receiver.current().to_json() is None
    until_windows(1)


def test_when_the_processes_started_and_their_group_formed(receiver: ProgressReceiver) -> None:
    receiver.note_started()
    report_group_formed()
    until(lambda: receiver.current().formed_at is not None)
    found = receiver.current()
    assert found.started_at is not None
    assert found.formed_at is not None
    assert found.started_at <= found.formed_at
    report(step=1)
    report_group_formed()  # another process of the pod
    report(step=2)
    until(lambda: receiver.current().step == 2)
    assert receiver.current().formed_at == found.formed_at
    told = found.to_json(found.started_at + 2.0)
    assert told["startedAgeSeconds"] == 2.0
    assert 0 <= (told["formedAgeSeconds"] or 0) <= 2.0
    receiver.start_round()
    assert receiver.current().to_json() is None


def test_the_group_and_the_first_step_of_each_round_are_news(receiver: ProgressReceiver) -> None:
    news: list[int | None] = []
    receiver.on_news = lambda: news.append(receiver.current().first_step)
    for first in (7, 5):
        receiver.start_round()
        report(loss=1.0)
        report_group_formed()
        report(step=first)
        report(step=first + 1)
        until(lambda first=first: receiver.current().step == first + 1)
    assert news == [None, 7, None, 5]


def test_a_burst_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unread:
        unread.bind(str(tmp_path / "report"))
        monkeypatch.setenv(REPORT_SOCKET, str(tmp_path / "report"))
        for step in range(2000):
            report(step=step)  # a call that waits for the reader never returns
        assert b"step" in unread.recv(1024)


def test_a_burst_is_read(receiver: ProgressReceiver) -> None:
    for step in range(2000):
        report(step=step)
    until(lambda: receiver.current().step is not None)


def test_nothing_is_reported_without_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REPORT_SOCKET, raising=False)
    report(step=1)
    monkeypatch.setenv(REPORT_SOCKET, "/nowhere/at/all")
    report(step=1)


def test_nonsense_does_not_raise(receiver: ProgressReceiver) -> None:
    report(step="seven", loss=object())
    report(step=3, loss=float("nan"))
    until(lambda: receiver.current() == Progress(step=3, first_step=3))


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"step": "7"}',
        b'{"step": true}',
        b'{"step": -1}',
        b'{"step": 1e300}',
        b"\xff\xfe",
        b'{"loss": []}',
        b"x" * 4097,
    ],
)
def test_a_datagram_that_is_no_report_is_refused(datagram: bytes) -> None:
    with pytest.raises(ValueError):
        Progress().with_fields(parse_report(datagram), 0.0)


@pytest.mark.process
def test_importing_the_package_does_not_import_torch() -> None:
    subprocess.run(
        [sys.executable, "-c", "import sys, elastic_pytorch; assert 'torch' not in sys.modules"],
        check=True,
    )


@pytest.mark.parametrize("datagram", [b"[" * 4096, b'{"step": 1%s}' % (b"0" * 400)])
def test_after_an_odd_datagram_reports_arrive(receiver: ProgressReceiver, datagram: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(datagram, receiver.path)
    report(step=3)
    until(lambda: receiver.current().step == 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"workSeconds": -1, "stepSeconds": 1, "localRank": 0},
        {"workSeconds": 1, "stepSeconds": -1, "localRank": 0},
        {"workSeconds": 1, "stepSeconds": 1, "localRank": -1},
        {"workSeconds": 1, "stepSeconds": 1, "localRank": MAX_LOCAL_RANKS},
        {"workSeconds": "1", "stepSeconds": 1, "localRank": 0},
    ],
)
def test_work_that_is_none_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        add_work(WorkWindows(), fields, 0.0)


def test_a_whole_machines_work_is_a_small_part_of_a_heartbeat() -> None:
    windows, told = WorkWindows(), None
    for second in range(6):
        for local_rank in range(MAX_LOCAL_RANKS):
            told = windows.add(local_rank, 1e5 / 3, 1.0, float(second)) or told
    assert len(json.dumps(told.to_json())) < 8 * 1024
