"""Command lines: what they print, what they do, and how they end.

Among them each one of the documentation.
"""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_client import cli
from elastic_pytorch_client.cluster import Access
from elastic_pytorch_client.completion import candidates
from elastic_pytorch_client.errors import NoJobKind, NotAllowed, Unreachable
from rich.console import Console
from rich.text import Text

from tests.paths import ROOT
from tests.plugin.plugin_console import FakeTime
from tests.plugin.recorded_cluster import RecordedCluster, moment_of, recorded

DOCS = ROOT / "docs" / "use" / "plugin.md"
COMMANDS = [
    line.strip() for line in DOCS.read_text().splitlines() if line.startswith("    kubectl epj ")
]
CASES = ROOT / "tests" / "plugin" / "migration" / "cases"

Epj = Callable[..., tuple[int, str]]


def settled(**status: Any) -> dict[str, Any]:
    """The job as it is once it is as it was asked to be, whatever that was."""
    job = recorded("young")["job"]
    job["metadata"] |= {"resourceVersion": "100000000"}
    job["status"] |= {"observedGeneration": 100, **status}
    return job


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


def over(cluster: RecordedCluster) -> dict[str, Any]:
    job = cluster.get_job("team", "char-lm")
    job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    return job


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_documentation(
    command: str,
    epj: Epj,
    fake_time: FakeTime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = RecordedCluster("young")
    members = [worker["name"] for worker in recorded("young")["job"]["status"]["workers"]]
    cluster.logs = {
        name: [f"2026-11-21T18:01:3{i}.5Z step {i} loss {9 - i}" for i in range(9)]
        for name in members
    }
    words = shlex.split(command)[2:]
    verb = words[0]
    if verb in ("resize", "resume"):
        cluster.script = [settled()]
    elif verb in ("suspend", "restart"):
        suspended = {"type": "Suspended", "status": "True"}
        cluster.script = [settled(workers=[], conditions=[suspended]), "BREAK", settled()]
    elif verb == "stacks":
        cluster.said = json.dumps({57: '  File "train.py", line 9 in step'})
    elif verb == "migrate":
        Path("job.yaml").write_text((CASES / "trainjob" / "before.yaml").read_text())
        Path("runtime.yaml").write_text(
            (CASES / "trainjob-with-runtime" / "before.yaml").read_text()
        )
        Path("train.sbatch").write_text((CASES / "slurm-torchrun" / "before.sbatch").read_text())
    elif verb == "ui":
        fake_time.on_sleep = interrupt
    elif "-f" in words or "--watch" in words:
        cluster.put(over(cluster))
    cluster.context = "prod"
    code, printed = epj(cluster, *words, now=moment_of("young"))
    assert code == 0
    said = capsys.readouterr()
    assert printed.strip() or "kind: ElasticPyTorchJob" in said.out
    only_reads = verb == "stacks" or not cluster.calls  # `stacks` reads by a command in each pod
    assert only_reads or said.err == "context: prod\n", "it does not say which cluster it changes"


def test_the_documentation_has_a_command_for_each_verb() -> None:
    assert {command.split()[2] for command in COMMANDS} == set(cli.VERBS)


def test_resize_says_what_it_does_and_waits(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [settled()]
    code, printed = epj(cluster, "resize", "epj/char-lm", "4", "--wait")
    assert (code, cluster.calls) == (0, [("scale", "char-lm", "4")])
    assert printed.splitlines() == [
        "char-lm: 3 -> 4 workers wanted",
        "char-lm: 3 workers train in round 1",
    ]


def test_waits_end(epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    assert epj(RecordedCluster("young"), "suspend", "char-lm", "--wait", "--timeout", "3")[0] == 1
    assert "3 s have passed before all its workers had stopped" in capsys.readouterr().err
    ended = RecordedCluster("young")
    ended.script = [over(ended)]
    assert epj(ended, "resize", "char-lm", "4", "--wait")[0] == 1
    assert "has ended" in capsys.readouterr().err


def test_wait_takes_no_silent_api_server_for_a_deletion(
    epj: Epj, fake_time: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = RecordedCluster("young")
    fake_time.on_sleep = lambda: cluster.faults.update(get_job=[Unreachable("gone")] * 9)
    assert epj(cluster, "suspend", "char-lm", "--wait", "--timeout", "3")[0] == 1
    assert "3 s have passed before all its workers had stopped" in capsys.readouterr().err


def test_why_exits_with_3_when_something_is_not_as_wanted(epj: Epj) -> None:
    assert epj(RecordedCluster("young"), "why", "char-lm")[0] == 0
    code, printed = epj(
        RecordedCluster("no-volume"), "why", "no-volume", now=moment_of("no-volume"), width=400
    )
    assert code == 3
    assert 'configmap "missing" not found' in printed


def test_why_without_the_right_to_see_nodes_or_events(epj: Epj) -> None:
    cluster = RecordedCluster("too-large")
    cluster.faults = {"list_nodes": [NotAllowed("no")], "list_events": [NotAllowed("no")]}
    code, printed = epj(cluster, "why", "too-large", width=400)
    assert code == 3
    assert "3 Insufficient cpu" in printed


def test_list_of_nothing(epj: Epj) -> None:
    assert epj(RecordedCluster(), "list") == (
        0,
        'There are no ElasticPyTorchJobs in namespace "team".',
    )
    assert epj(RecordedCluster(), "list", "-A") == (0, "There are no ElasticPyTorchJobs.")


def test_logs_have_prefixes_where_lines_could_be_anybodys(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    first, second = (worker["name"] for worker in recorded("young")["job"]["status"]["workers"][:2])
    cluster.logs = {
        first: ["2026-01-01T00:00:00Z [red]hello"],
        second: ["2026-01-01T00:00:01Z " + "x" * 300],
    }
    assert epj(cluster, "logs", "char-lm")[1].splitlines() == [
        "[rank 0] [red]hello",
        "[rank 1] " + "x" * 300,
    ]
    assert epj(cluster, "logs", "char-lm", "--rank", "0")[1] == "[red]hello"
    assert epj(cluster, "logs", "char-lm", "--rank", "0", "--tail", "-1")[1] == "[red]hello"
    assert epj(cluster, "logs", "char-lm", "--no-prefix", "--timestamps", "--tail", "1")[
        1
    ].startswith("2026-01-01T00:00:00Z [red]")


@pytest.mark.parametrize(
    ("words", "faults", "said"),
    [
        (
            ["status", "nobody"],
            {},
            'error: there is no ElasticPyTorchJob "nobody" in namespace "team"',
        ),
        (
            ["list"],
            {"list_jobs": [NoJobKind("no such kind: is the chart installed?")]},
            "error: no such kind: is the chart",
        ),
        (["logs", "char-lm", "--rank", "9"], {}, "error: char-lm has no rank 9 now"),
    ],
)
def test_errors_are_one_line(
    words: list[str],
    faults: dict[str, Any],
    said: str,
    epj: Epj,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = RecordedCluster("young")
    cluster.faults = faults
    code, printed = epj(cluster, *words)
    errors = capsys.readouterr().err.splitlines()
    assert (code, printed, len(errors)) == (1, "", 1)
    assert errors[0].startswith(said)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dance"],
        ["status"],
        ["resize", "x"],
        ["resize", "x", "many"],
        ["status", "pod/x"],
        ["status", ""],
    ],
)
def test_wrong_usage(words: list[str], epj: Epj) -> None:
    with pytest.raises(SystemExit) as ended:
        epj(RecordedCluster(), *words)
    assert ended.value.code == 2


def test_access_may_stand_before_and_after_the_verb() -> None:
    asked: list[Access] = []

    def connect(access: Access) -> RecordedCluster:
        asked.append(access)
        return RecordedCluster("young")

    console = Console(quiet=True)
    for line in (
        "-n team --context c --user u list --kubeconfig f --as a --as-uid=7 --cluster=k "
        "--as-group g --as-group=h",
        "list -n team --context=c --kubeconfig=f --cluster=k --user=u --as=a "
        "--as-group g --as-group=h --as-uid=7",
        "-n team --context c --user u --as a --as-uid=7 --as-group g list --kubeconfig f "
        "--cluster=k --as-group=h",
    ):
        assert cli.run(line.split(), connect, console) == 0
    assert asked == [Access("f", "c", "team", "k", "u", "a", ("g", "h"), "7")] * 3


def test_a_misspelt_verb_is_told_of(epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    for typed, said in (
        ("staus", 'no verb "staus"; did you mean "status"?'),
        ("dance", 'there is no verb "dance"\n'),
    ):
        with pytest.raises(SystemExit):
            epj(RecordedCluster(), typed)
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_has_examples_and_fits_the_screen(
    verb: str, epj: Epj, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        epj(RecordedCluster(), verb, "--help")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    examples = [line.split()[2:] for line in lines[lines.index("examples:") + 1 :]]
    assert examples
    for words in examples:
        assert cli.parser().parse_args(words).verb == verb


def test_list_of_those_with_a_label(epj: Epj) -> None:
    cluster = RecordedCluster("young", "suspended")
    job = cluster.get_job("team", "char-lm")
    job["metadata"]["labels"] = {"team": "nlp"}
    cluster.put(job)
    assert (
        epj(cluster, "list", "-l", "team=nlp", "-o", "name")[1]
        == "elasticpytorchjob.elasticpytorch.dev/char-lm"
    )


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437"])
def test_output_is_utf_8_whatever_the_locale(encoding: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0"}
    job.write_text(
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {text: 训练 ●}\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "elastic_pytorch_client", "migrate", "-f", str(job)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert "训练 ●" in done.stdout.decode()


def test_ctrl_c_ends_it(epj: Epj, fake_time: FakeTime) -> None:
    fake_time.on_sleep = interrupt
    assert epj(RecordedCluster("young"), "suspend", "char-lm", "--wait")[0] == 130


def test_status_that_is_watched_ends_with_the_job(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [settled(progress={"step": 400, "total": 800}), over(cluster)]
    code, printed = epj(cluster, "status", "char-lm", "--watch")
    assert code == 0
    assert "step 400 of 800" in printed


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", sorted(cli.VERBS)),
        ("s", ["stacks", "status", "suspend"]),
        ("status ", ["char-lm", "mnist"]),
        ("status m", ["mnist"]),
        ("-n team status c", ["char-lm"]),
        ("status char-lm ", []),
        ("list ", []),
        ("logs x --r", ["--rank"]),
        ("logs x --rank ", []),
        ("status --w", ["--watch"]),
        ("--con", ["--context"]),
        ("--a", ["--as", "--as-group", "--as-uid"]),
        ("-n team --as a --as-group g --as-group=h status c", ["char-lm"]),
    ],
)
def test_completion(typed: str, found: list[str]) -> None:
    asked: list[Access] = []

    def names(access: Access) -> list[str]:
        asked.append(access)
        return ["char-lm", "mnist"]

    assert candidates(typed.split(" "), names) == (found, ":4")
    assert all(access.namespace in ("", "team") for access in asked)
    assert all(access.act_as_groups in ((), ("g", "h")) for access in asked)


def test_completion_of_files() -> None:
    assert candidates(["migrate", "-f", ""], lambda access: []) == ([], ":0")
    assert candidates(["migrate", ""], lambda access: []) == ([], ":0")
    assert candidates(["migrate", "--r"], lambda access: []) == (["--runtime"], ":4")


def test_no_text_of_a_tenant_commands_the_terminal() -> None:
    written = io.StringIO()
    console = cli.TerminalConsole(file=written, width=80, highlight=False)
    console.print(Text("\x1b[31mred\x1b[0m \x1b]52;c;ZQ==\x07clip\x1b[2J\x9b2Jboard"))
    assert written.getvalue() == "\x1b[31mred\x1b[0m ]52;c;ZQ==clip2Jboard\n"


@pytest.mark.process
def test_name_that_is_no_utf_8_is_told(tmp_path: Path) -> None:
    missing = os.fsencode(tmp_path) + b"/\xff.yaml"
    command = [sys.executable, "-m", "elastic_pytorch_client", "migrate", "-f", missing]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: cannot read ")
