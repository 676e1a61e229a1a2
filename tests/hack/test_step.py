"""Shell scripts can be executed, and their steps end as their command did, whenever that was."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

STEP = ROOT / "hack" / "step.sh"
# A process of its own gets the process id that the step had, as on a machine that starts thousands
# of compilers meanwhile.
REUSE = """
await_end() { while kill -0 "$1" 2>/dev/null; do sleep 0.05; done; }
reuse() {
    local taken=
    until [[ $taken == "$1" ]]; do
        [[ -z $taken ]] || kill "$taken"
        echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid
        sleep 1000 &
        taken=$!
    done
}
"""


def run(script: str, folder: Path, *before: str) -> subprocess.CompletedProcess[str]:
    (folder / "logs").mkdir()
    lines = ["set -euo pipefail", f"STATE={folder}", f"source {STEP}", REUSE, script]
    return subprocess.run(
        [*before, "bash", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_own_process_ids() -> tuple[str, ...]:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root can say which process id comes next")
    return ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def test_each_program_of_hack_names_its_interpreter() -> None:
    programs = [path for path in (ROOT / "hack").rglob("*") if path.is_file()]
    executed = [path for path in programs if os.access(path, os.X_OK)]
    assert executed and not [path for path in executed if path.read_bytes()[:2] != b"#!"]


def test_a_step_that_succeeds_says_so(tmp_path: Path) -> None:
    ended = run('step quick "Do it" true; echo went on', tmp_path)
    assert ended.returncode == 0
    begun, done, after = ended.stdout.splitlines()
    assert (begun, after) == ("  ... Do it", "went on")
    assert re.fullmatch(r"  ok  Do it \(\d+ s\)", done)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["quick.log"]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("broken() { echo last words; return 3; }", 3),
        ("broken() { echo last words; (exit 5); echo not reached; }", 5),
        ("broken() { echo last words; kill -KILL $BASHPID; }", 137),
    ],
)
def test_a_step_that_fails_ends_the_script_with_its_last_lines(
    tmp_path: Path, command: str, status: int
) -> None:
    ended = run(f'{command}\nstep bad "Do it" broken; echo went on', tmp_path)
    assert ended.returncode == 1
    assert "went on" not in ended.stdout
    assert f"Do it (exit status {status}). Its last lines:\n      last words" in ended.stderr
    assert "not reached" not in ended.stderr


@pytest.mark.parametrize(("command", "told"), [("true", "ok  Do it ("), ("false", "FAILED after ")])
def test_a_step_that_ended_before_it_is_waited_for_says_its_own_seconds(
    tmp_path: Path, command: str, told: str
) -> None:
    script = (
        f'step_start early "Do it" {command}; await_end "${{STEP_PID[early]}}"; SECONDS=1000; '
        "step_wait early"
    )
    ended = run(script, tmp_path)
    [seconds] = re.findall(rf"  {re.escape(told)}(\d+) s", ended.stdout + ended.stderr)
    assert int(seconds) < 1000


def test_a_step_that_is_killed_with_all_its_processes_has_failed(tmp_path: Path) -> None:
    ended = run(
        'step_start bad "Do it" sleep 1000; kill -KILL -- "-${STEP_PID[bad]}"; step_wait bad; '
        "echo went on",
        tmp_path,
    )
    assert ended.returncode == 1
    assert "Do it (it was killed)" in ended.stderr


def test_the_process_id_of_a_step_may_be_used_again_before_it_is_waited_for(tmp_path: Path) -> None:
    script = """
        step_start early "Do it" false
        pid=${STEP_PID[early]}
        await_end "$pid"
        reuse "$pid"
        step_wait early
    """
    ended = run(script, tmp_path, *in_own_process_ids())
    assert ended.returncode == 1 and "exit status 1" in ended.stderr, ended.stderr


def test_what_has_the_process_id_of_an_ended_step_is_not_ended_with_the_script(
    tmp_path: Path,
) -> None:
    script = """
        step_start early "Do it" true
        pid=${STEP_PID[early]}
        await_end "$pid"
        set -m  # a process group of its own
        reuse "$pid"
        set +m
        end_running_steps
        sleep 0.2
        kill -0 "$pid"
    """
    ended = run(script, tmp_path, *in_own_process_ids())
    assert ended.returncode == 0, ended.stderr
