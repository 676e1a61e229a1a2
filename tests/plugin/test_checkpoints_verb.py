"""`kubectl epj checkpoints`: real processes say where their checkpoints are, and the library of their own Python lists them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_client.errors import NotAllowed
from elastic_pytorch_client.reading.checkpoints import Checkpoint, CheckpointFolder, read_folders
from elastic_pytorch_client.views.checkpoint_table import show_folders, size_of

from tests.paths import ROOT
from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import RecordedCluster, job_of, moment_of
from tests.plugin.test_stacks import Pods

Epj = Callable[..., tuple[int, str]]
SCRIPT = """
import os, sys, time
from pathlib import Path
from elastic_pytorch.memory.state_names import StateNames
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import write
folder, names = Path(sys.argv[1]), StateNames()
names.give(None, "")
names.free(names.give(folder / "closed", ""))
names.give(folder, "")
for step in (100, 200):
    write(folder, StateVersion(1, step), [bytes(step)], keep=2)
for name, files in (("checkpoint-g000002-s000000300.sharded", ["__0_0.distcp", "checkpoint-g000002-s000000300.elastic"]),
                    (".partial-sharded-g000002-s000000400-0123456789abcdef", ["__0_0.distcp"])):
    (folder / name).mkdir()
    for file in files:
        (folder / name / file).write_bytes(bytes(1_500_000))
marked = os.memfd_create("elastic-pytorch-stop")
print("ready", flush=True)
time.sleep(600)
"""
WORKERS = [worker.name for worker in job_of("young").members]


@pytest.fixture
def start() -> Iterator[Callable[..., None]]:
    """Starts a training process of a worker, in a script of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(worker: str, script: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "worker_image"),
            "ELASTIC_PYTORCH_WORKER": f"{os.getpid()}-{worker}",
        }
        command = [sys.executable, "-c", script, *arguments]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_verb_lists_both_formats(start: Callable[..., None], epj: Epj, tmp_path: Path) -> None:
    start(WORKERS[0], SCRIPT, str(tmp_path))
    later = datetime.now(UTC) + timedelta(minutes=5)
    code, printed = epj(Pods("young"), "checkpoints", "char-lm", now=later, width=130)
    place, title, *lines = printed.splitlines()
    assert (code, place) == (0, str(tmp_path))
    assert title.split() == ["STEP", "SIZE", "AGE", "STATE", "NAME"]
    assert [line.split()[0] for line in lines] == ["400", "300", "200", "100"]
    assert lines[0].split()[-2:] == ["incomplete", ".partial-sharded-g000002-s000000400-0123456789abcdef"]
    assert lines[1].split() == ["300", "3.00", "MB", "5m", "complete", "checkpoint-g000002-s000000300.sharded"]
    assert lines[2].split() == ["200", "284", "B", "5m", "complete", "checkpoint-g000001-s000000200.elastic"]

    told = json.loads(epj(Pods("young"), "checkpoints", "char-lm", "-o", "json")[1])
    assert (told["job"], told["worker"], told["reportedStep"]) == ("char-lm", WORKERS[0], 80)
    (listed,) = told["places"]
    assert [each["format"] for each in listed["checkpoints"]] == ["sharded", "sharded", "file", "file"]
    assert [each["complete"] for each in listed["checkpoints"]] == [False, True, True, True]


def test_verb_says_why_a_place_cannot_be_listed(start: Callable[..., None], epj: Epj, tmp_path: Path) -> None:
    start(
        WORKERS[0],
        SCRIPT.replace("(100, 200)", "()").partition("for name")[0] + SCRIPT[SCRIPT.index("marked") :],
        str(tmp_path),
    )
    assert epj(Pods("young"), "checkpoints", "char-lm") == (0, f"{tmp_path}\nhas no checkpoint yet")
    tmp_path.rmdir()
    tmp_path.touch()
    code, printed = epj(Pods("young"), "checkpoints", "char-lm")
    assert (code, printed) == (1, f"{tmp_path}\ncannot be listed: Not a directory")


def test_verb_says_what_is_known_without_the_library(start: Callable[..., None], epj: Epj, capsys: Any) -> None:
    start(
        WORKERS[0], "import os, time; f = os.memfd_create('elastic-pytorch-stop'); print('ready', flush=True); time.sleep(600)"
    )
    assert epj(Pods("young"), "checkpoints", "char-lm")[0] == 1
    said = capsys.readouterr().err
    assert f"no process of pod {WORKERS[0]} has told where checkpoints are" in said
    assert said.endswith("The last one that the job has reported is of step 80\n")


def test_verb_without_workers_or_rights(epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    assert epj(RecordedCluster("suspended"), "checkpoints", "sleeper")[0] == 1
    assert "no worker of sleeper runs, and only a worker can list its checkpoints. The job has" in capsys.readouterr().err
    cluster = RecordedCluster("young")
    cluster.faults = {"run_in_pod": [NotAllowed("it needs the verbs get and create on pods/exec")]}
    assert epj(cluster, "checkpoints", "char-lm")[0] == 1
    assert "pods/exec" in capsys.readouterr().err


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "5",
        "[5]",
        "[{}]",
        '[{"place": "/x", "checkpoints": [{"step": "many"}]}]',
        '[{"place": "/x", "checkpoints": 5}]',
        "[" * 99_999,
        '[{"place": "/x", "checkpoints": [{"step": Infinity, "name": "", "format": "", "bytes": 1, "complete": true}]}]',
    ],
)
def test_what_a_pod_says_may_be_anything(said: str, epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = RecordedCluster("young")
    cluster.said = said
    assert epj(cluster, "checkpoints", "char-lm")[0] == 1
    assert capsys.readouterr().err.startswith(f"error: pod {WORKERS[0]} does not list checkpoints as this release does")


def test_names_cannot_move_the_cursor() -> None:
    listed = {"step": 7, "name": "\x1b[2J", "format": "file", "bytes": 1, "complete": True}
    (folder,) = read_folders(json.dumps([{"place": "/a\rb", "checkpoints": [listed]}]))
    assert folder == CheckpointFolder("/a\ufffdb", (Checkpoint(7, "\ufffd[2J", "file", 1, None, True),))


def test_narrow_screens_leave_out_columns_and_cut_no_name() -> None:
    folder = CheckpointFolder("/" + "long" * 20, (Checkpoint(7, "n" * 40, "file", 10, moment_of("young"), True),))
    wide, narrow = (text_of(show_folders([folder], moment_of("young")), width) for width in (100, 60))
    assert ("AGE" in wide, "AGE" in narrow) == (True, False)
    assert all(each.splitlines()[0] == folder.place and "n" * 40 in each for each in (wide, narrow))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (999_700, "1.00 MB"),
        (123e9, "123 GB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes(size: float, text: str) -> None:
    assert size_of(int(size)) == text
