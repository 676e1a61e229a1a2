import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from elastic_pytorch_client import stacks
from elastic_pytorch_client.errors import NotAllowed, Refused
from elastic_pytorch_client.reading.job_view import Worker
from elastic_pytorch_client.stacks import (
    ProcessStack,
    group_stacks,
    waited_for,
    waits_in_collective,
)
from elastic_pytorch_client.training_processes import container_command
from elastic_pytorch_client.verbs.stacks import name_processes

from tests.paths import ROOT
from tests.plugin.recorded_cluster import RecordedCluster, job_of

Epj = Callable[..., tuple[int, str]]
COLD_START = ROOT / "worker_image" / "elastic_pytorch" / "stopping" / "cold_start"
SCRIPT = """
import threading, time
def waits():
    print("ready", flush=True)
    threading.Event().wait()
def computes():
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(600,), name="another", daemon=True).start()
    print("ready", flush=True)
    while True:
        sum(range(1000))
"""
PODS = [worker.name for worker in job_of("young").members]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str, str], int]]:
    """Starts a worker's process that begins in a new interpreter; returns its id."""
    (tmp_path / "train.py").write_text(SCRIPT)
    started: list[subprocess.Popen[str]] = []

    def run(worker: str, function: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import train; train.{function}()"],
            env={
                **os.environ,
                "PYTHONPATH": f"{COLD_START}:{tmp_path}",
                "ELASTIC_PYTORCH_WORKER": worker,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process.pid

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def run_here(worker: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command as in the container of a worker."""
    environment = {**os.environ, "ELASTIC_PYTORCH_WORKER": worker}
    return subprocess.run(
        [sys.executable, *command[1:]], env=environment, capture_output=True, text=True, check=False
    )


class Pods(RecordedCluster):
    """Runs commands on this machine."""

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        super().run_in_pod(namespace, pod, container, command)
        done = run_here(f"{os.getpid()}-{pod}", command)
        if done.returncode:
            raise Refused(f"exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def test_processes_write_where_they_are_and_go_on(start: Callable[[str, str], int]) -> None:
    name = f"{os.getpid()}-w0"
    waiting, computing = start(name, "waits"), start(name, "computes")
    for _ in range(2):
        told = json.loads(run_here(name, container_command()).stdout)
        assert set(told) == {str(waiting), str(computing)}
        assert "in wait\n" in told[str(waiting)]
        assert "in waits\n" in told[str(waiting)]
        assert told[str(computing)].startswith('  File "')
        assert "in computes\n" in told[str(computing)]
        assert all(stack.endswith("in <module>") for stack in told.values()), "whole"


def test_process_that_does_not_expect_the_signal_is_not_killed() -> None:
    name = f"{os.getpid()}-w1"
    script = (
        "import os, time; os.memfd_create('elastic-pytorch-stop'); print(flush=True); "
        "time.sleep(600)"
    )
    environment = {**os.environ, "ELASTIC_PYTORCH_WORKER": name}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        told = json.loads(run_here(name, container_command()).stdout)
        assert told == {str(process.pid): ""}
        assert process.poll() is None
        process.kill()


def test_verb_shows_equal_stacks_once(start: Callable[[str, str], int], epj: Epj) -> None:
    for pod, function in zip(PODS, ("waits", "computes", "waits"), strict=True):
        start(f"{os.getpid()}-{pod}", function)
    code, printed = epj(Pods("young"), "stacks", "char-lm")
    assert code == 0
    first, second = printed.split("\n\n")
    assert first.startswith("ranks 0, 2\n  File ")
    assert second.startswith("rank 1\n  File ")
    assert "in waits" in first
    assert "in computes" in second


def test_verb_says_of_which_workers_nothing_is_known(
    start: Callable[[str, str], int], epj: Epj
) -> None:
    start(f"{os.getpid()}-{PODS[0]}", "waits")
    code, printed = epj(Pods("young"), "stacks", "char-lm")
    assert code == 0
    assert printed.split("\n\n")[1] == "ranks 1-2, exit code 1: no training process was found"


def test_verb_without_workers_or_rights(epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    assert epj(RecordedCluster("suspended"), "stacks", "sleeper")[0] == 1
    assert "no worker of sleeper runs; `kubectl epj why sleeper`" in capsys.readouterr().err
    cluster = RecordedCluster("young")
    cluster.faults = {"run_in_pod": [NotAllowed("it needs the verbs get and create on pods/exec")]}
    assert epj(cluster, "stacks", "char-lm")[0] == 1
    assert "pods/exec" in capsys.readouterr().err


def a_stack(
    rank: int | None, stack: str = "a", *, pid: int = 57, index: int = 9, trouble: str = ""
) -> ProcessStack:
    return ProcessStack(Worker(f"w{index}-{rank}", index, rank, "", "Running"), pid, stack, trouble)


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ([a_stack(3)], "rank 3"),
        ([a_stack(rank) for rank in (0, 1, 2, 5, 7, 8)], "ranks 0-2, 5, 7-8"),
        (
            [a_stack(0), a_stack(0, pid=58), a_stack(1)],
            "rank 0 (processes 57, 58); rank 1 (process 57)",
        ),
        ([a_stack(None), a_stack(None, index=2, pid=0)], "index 9 (process 57); index 2"),
    ],
)
def test_names_of_processes(group: list[ProcessStack], named: str) -> None:
    assert name_processes(group) == named


def test_largest_group_comes_first_and_trouble_last() -> None:
    stacks = [
        a_stack(0, "", trouble="no"),
        a_stack(1, "", trouble="no"),
        a_stack(2, "b"),
        a_stack(3),
        a_stack(4),
    ]
    assert [[stack.worker.rank for stack in group] for group in group_stacks(stacks)] == [
        [3, 4],
        [2],
        [0, 1],
    ]


SECTIONS = (ROOT / "tests/worker_image/stopping/hang_stacks.txt").read_text().split("== ")[1:]
HANGS = {name: stack for name, _, stack in (section.partition("\n") for section in SECTIONS)}
WAITS = [
    "all_reduce",
    "barrier",
    "broadcast",
    "all_gather_object",
    "recv",
    "wait_tensor",
    "backward",
]


@pytest.mark.parametrize("hang", HANGS)
def test_collectives_are_told_from_other_places(hang: str) -> None:
    assert waits_in_collective(HANGS[hang]) == (
        hang in [*WAITS, "the construction of DistributedDataParallel"]
    )


@pytest.mark.parametrize(
    ("hangs", "named"),
    [
        (["all_reduce", "all_reduce", "a data loader"], ["ranks 2"]),
        (["backward", "a file"], ["ranks 1"]),
        (["all_reduce", "barrier", "an event", ""], ["ranks 2", "ranks 3"]),
        (["all_reduce", "a data loader", "a data loader"], []),
        (["all_reduce", "all_reduce"], []),
        (["the script", "a data loader"], []),
    ],
)
def test_processes_that_the_others_wait_for(hangs: list[str], named: list[str]) -> None:
    groups = group_stacks(
        a_stack(rank, HANGS.get(hang, ""), trouble="" if hang else "late")
        for rank, hang in enumerate(hangs)
    )
    found = [
        name_processes(group).replace("rank ", "ranks ")
        for group, late in zip(groups, waited_for(groups), strict=True)
        if late
    ]
    assert found == named


class HungPods(RecordedCluster):
    """Of three processes the last one is in its data loader."""

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        super().run_in_pod(namespace, pod, container, command)
        return json.dumps(
            {"57": HANGS["a data loader" if pod == PODS[2] else "all_reduce"].strip("\n")}
        )


def test_verb_marks_the_rank_that_the_others_wait_for(epj: Epj) -> None:
    code, printed = epj(HungPods("young"), "stacks", "char-lm")
    assert code == 0
    first, second = printed.split("\n\n")
    assert first.startswith("ranks 0-1\n  File ")
    assert second.startswith("rank 2, outside of the collective that the others wait in\n  File ")
    told = json.loads(epj(HungPods("young"), "stacks", "char-lm", "-o", "json")[1])
    assert [group["waitedFor"] for group in told["groups"]] == [False, True]


def test_each_place_of_a_large_job_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(stacks, "waits_in_collective", looked.append)
    groups = group_stacks(a_stack(rank, f"place {rank // 2}") for rank in range(600))
    waited_for(groups)
    assert len(looked) == len(groups) == 300


def test_output_that_is_no_stack_is_shown_as_it_is(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    cluster.said = '{"57": [1]}'
    code, printed = epj(cluster, "stacks", "char-lm")
    assert code == 0
    assert printed.split("\n") == ["ranks 0-2", "[1]"]
