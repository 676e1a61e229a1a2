"""What the programs that measure share: options, signals, a namespace, and its removal."""

import argparse
import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from measure.api import Api, remove_namespace
from measure.cluster import ClusterDriver
from measure.commands import Commands
from measure.engine import TROUBLE, Say
from measure.kind_cluster import CONTROL_PLANE, KUBECONFIG, KUBECTL, ROOT
from measure.recorded_job import scripts, shared_folder

GONE_SECONDS = 180.0


def say(text: str, style: str | None = None) -> None:
    Console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def complain(complaints: list[str]) -> int:
    for complaint in complaints:
        say(complaint, style="red")
    return 1 if complaints else 0


def names_of(known: Collection[str], what: str = "name") -> Callable[[str], list[str]]:
    """A type for argparse: names between commas, in the order of `known`."""

    def parse(text: str) -> list[str]:
        wanted = text.split(",")
        if unknown := [name for name in wanted if name not in known]:
            there_are = f"there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(f"no such {what}: {', '.join(unknown)}; {there_are}")
        return [name for name in known if name in wanted]

    return parse


def new_parser(program: str, about: str | None) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(
        prog=f"hack/{program}", description=about, formatter_class=formatter
    )


def add_trials(
    parser: argparse.ArgumentParser, kinds: Collection[str], default: list[str], which: str
) -> None:
    parser.add_argument("--trials", type=int, default=5, help="of each kind (default: %(default)s)")
    listed, parse = f"of {', '.join(kinds)} (default: {which})", names_of(kinds, "kind")
    parser.add_argument("--only", metavar="a,b", type=parse, default=default, help=listed)


def run(measuring: Callable[[], Coroutine[Any, Any, int]], target: str) -> int:
    """Runs a program on the cluster; exits with 130 if interrupted, 2 without a cluster."""
    if not KUBECONFIG.exists():
        say(f"There is no cluster here yet: `make {target}` makes one, with the operator in it.")
        return 2

    async def go() -> int:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            # Once: a second time would break the clean-up.
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: None if task.cancelling() else task.cancel()
            )
        return await measuring()

    try:
        return asyncio.run(go())
    except asyncio.CancelledError:
        say("Interrupted: all was removed.")
        return 130


def commit_of_checkout() -> str:
    describe = ("git", "describe", "--always", "--dirty")
    done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Session:
    """The cluster of a run; its folder, below /shared on the nodes, has the namespace's name."""

    driver: ClusterDriver
    folder: Path
    nodes: list[str]
    stack: AsyncExitStack


@asynccontextmanager
async def session(what: str, script_files: Iterable[str], say: Say) -> AsyncIterator[Session]:
    """A namespace with a folder and scripts in a ConfigMap, removed at the end."""
    namespace, commands = f"{what}-{int(time.time()) & 0xFFFFFF:06x}", Commands(KUBECTL, KUBECONFIG)
    async with Api.connect(KUBECONFIG) as api, AsyncExitStack() as stack:
        listed = (await api.ask("GET", "/api/v1/nodes"))["items"]
        found = [node["metadata"]["name"] for node in listed]
        folder = await stack.enter_async_context(shared_folder(commands, namespace))
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        removal = partial(remove_namespace, api, namespace, GONE_SECONDS)
        stack.push_async_callback(remove, removal, f"namespace {namespace} is", say)
        await api.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", scripts(script_files))
        say(f"Namespace {namespace}:")
        nodes = sorted(node for node in found if node != CONTROL_PLANE)
        yield Session(ClusterDriver(api, commands, namespace), folder, nodes, stack)


async def remove(removal: Callable[[], Awaitable[None]], what: str, say: Say) -> None:
    try:
        await removal()
    except TROUBLE as error:
        say(f"{what} not gone yet: {type(error).__name__} {error}")
