import asyncio
from pathlib import Path

import pytest
from measure.commands import CommandFailed, Commands


def program(folder: Path, script: str) -> Path:
    file = folder / "kubectl"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


async def test_kubectl_gets_its_cluster_and_its_input(tmp_path: Path) -> None:
    commands = Commands(program(tmp_path, 'echo "$KUBECONFIG $*"; cat'), tmp_path / "kubeconfig")
    assert await commands.kubectl("apply", "-f", "-", stdin="{}") == f"{tmp_path / 'kubeconfig'} apply -f -\n{{}}"


async def test_a_command_that_has_begun_ends_before_an_interruption_goes_on(tmp_path: Path) -> None:
    begun, trace = tmp_path / "begun", tmp_path / "trace"
    commands = Commands(program(tmp_path, f"touch {begun}\nsleep 0.3\necho done >{trace}"), tmp_path / "kubeconfig")
    running = asyncio.create_task(commands.kubectl("drain"))
    while not begun.exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert trace.read_text() == "done\n"


async def test_an_interruption_waits_no_longer_than_it_is_told(tmp_path: Path) -> None:
    begun, let_end = tmp_path / "begun", tmp_path / "let_end"
    script = program(tmp_path, f"touch {begun}\nwhile [ ! -e {let_end} ]; do sleep 0.01; done")
    running = asyncio.create_task(Commands(script, tmp_path, interrupted_seconds=0.05).kubectl("wait"))
    while not begun.exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    let_end.touch()
    await asyncio.sleep(0.2)


async def test_a_command_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    script = program(tmp_path, "echo no such node >&2; exit 1")
    with pytest.raises(CommandFailed, match="kubectl drain n1: no such node"):
        await Commands(script, tmp_path / "kubeconfig").kubectl("drain", "n1")
