"""One job on this machine, from its manifest or its script to its end."""

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.spec.job import training_container

from elastic_pytorch_local.faults.acts import ActFailed, Acts
from elastic_pytorch_local.faults.cost import cost_table, repeated_on_purpose
from elastic_pytorch_local.faults.driver import TROUBLE
from elastic_pytorch_local.faults.local_driver import LocalDriver
from elastic_pytorch_local.faults.steps import steps_per_second
from elastic_pytorch_local.faults.watcher import Watcher, background
from elastic_pytorch_local.manifests.admission import admit
from elastic_pytorch_local.manifests.config_objects import (
    CONFIG_MAP,
    Config,
    config_of_path,
    read_config,
)
from elastic_pytorch_local.manifests.documents import Documents, read_documents
from elastic_pytorch_local.manifests.limits import (
    check_references,
    fields_not_applied,
    find_obstacles,
)
from elastic_pytorch_local.manifests.script_job import is_script, job_of_script
from elastic_pytorch_local.page import serve_page
from elastic_pytorch_local.pods.kubelet import print_line
from elastic_pytorch_local.progress_lines import ProgressLines

POLL_SECONDS = 0.2
STOP_SECONDS = 60.0
COMPLETE, FAILED, REPEATED, STOPPED = 0, 1, 3, 130  # the process's exit codes


def say(text: str) -> None:
    """Prints to standard error, as standard output is the pods'."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def read_job(
    files: Sequence[Path],
    config_maps: Iterable[tuple[str, Path]] = (),
    arguments: Sequence[str] = (),
    workers: int | None = None,
) -> tuple[Documents, Config]:
    """The job of a manifest or a script, with additional arguments.

    Raises:
        InvalidJob: a cluster would refuse it, or it refers to something missing.
    """
    if is_script(files[0]):
        documents = Documents(job_of_script(files[0], arguments, workers))
    else:
        documents = read_documents(files)
        if workers is not None and isinstance(documents.job.get("spec"), dict):
            documents.job["spec"]["replicas"] = workers
    namespace = admit(documents.job).key.namespace
    config = read_config(documents.config, namespace)
    config |= {(CONFIG_MAP, name): config_of_path(path) for name, path in config_maps}
    if not is_script(files[0]) and arguments:
        container: Any = training_container(documents.job["spec"]["template"])
        container["args"] = [*(container.get("args") or ()), *arguments]
    check_references(documents.job, config)
    return documents, config


async def run_local(
    files: Sequence[Path],
    *,
    workdir: Path | None = None,
    leave_out: bool = False,
    page: bool = False,
    faults: bool = False,
    config_maps: Iterable[tuple[str, Path]] = (),
    arguments: Sequence[str] = (),
    workers: int | None = None,
) -> int:
    """Runs a job to its end, or through the faults; returns the process's exit code.

    Volumes go to `workdir`, or to a temporary folder. With `leave_out`, it runs without what this
    machine cannot do.
    """
    try:
        documents, config = read_job(files, config_maps, arguments, workers)
    except (OSError, yaml.YAMLError, ValueError) as error:  # or a file that is no text
        print(f"{files[0]}: {error}", file=sys.stderr)
        return 2
    manifest = documents.job
    obstacles = find_obstacles(manifest)
    if obstacles and not leave_out:
        print(*(f"{files[0]}: {obstacle}" for obstacle in obstacles), sep="\n", file=sys.stderr)
        return 2
    paths_left_out = [obstacle.path for obstacle in obstacles]
    unused = [*paths_left_out, *fields_not_applied(manifest), *documents.others]
    if unused and not is_script(files[0]):
        print(f"not applied on one machine: {', '.join(unused)}", file=sys.stderr)
    # There is no queue on this machine.
    (manifest["metadata"].get("labels") or {}).pop(kueue.LABEL_QUEUE, None)
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)

    def show(pod: str, line: str) -> None:
        # Only the table of faults matters, and a stop is one sentence.
        if not (faults or interrupted.is_set()):
            print_line(pod, line)

    # As in the worker image.
    paths = {} if is_script(files[0]) else {"/examples": files[0].parent.parent}
    with tempfile.TemporaryDirectory(prefix="elastic-pytorch-") as temporary:
        place, namespace = workdir or Path(temporary), manifest["metadata"]["namespace"]
        started = LocalDriver.started(place, paths, namespace=namespace, config=config, show=show)
        async with started as driver:
            with serve_page(driver.reader()) if page else nullcontext("") as url:
                if url:
                    say(f"the page of the job: {url}")
                await driver.create_job(manifest)
                name = manifest["metadata"]["name"]
                return await _train(driver, name, interrupted, faults=faults)


async def _train(
    driver: LocalDriver, name: str, interrupted: asyncio.Event, *, faults: bool
) -> int:
    watcher = Watcher(driver, name)
    acts = Acts(driver, watcher, say)
    async with background(watcher.run(), _progress(watcher, ProgressLines(changes=not faults))):
        with _sizes_typed(driver, watcher):
            work = acts.perform() if faults else _ended(watcher)
            over, failure = await _unless(interrupted, work)
        job = watcher.job
        if faults and acts.costs:
            print(cost_table(acts.costs), flush=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                if not job.ended:
                    say(f"stopping {name}")
                    await driver.delete_job(name)
                # A cluster in memory has no event for it.
                while not driver.pods_have_ended():  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
    if failure:
        print(driver.last_words(), flush=True)
        say(failure)
    if not faults:
        return _exit_code(job)
    if not over:
        return STOPPED
    if failure:
        return FAILED
    return REPEATED if repeated_on_purpose(acts.costs) else COMPLETE


def _exit_code(job: JobView) -> int:
    if job.complete:
        return COMPLETE
    if (failed := job.condition("Failed")) is None or not failed.true:
        return STOPPED
    print(f"{job.name} has failed, {failed.reason}: {failed.message}", file=sys.stderr)
    return FAILED


async def _unless(interrupted: asyncio.Event, work: Coroutine[Any, Any, None]) -> tuple[bool, str]:
    """Whether some work is over before an interruption, and its failure; empty: none."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(interrupted.wait())
    await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    over = working.done()
    for task in (working, waiting):
        task.cancel()
    [failed, _] = await asyncio.gather(working, waiting, return_exceptions=True)
    if isinstance(failed, (ActFailed, *TROUBLE)):
        return over, str(failed) or repr(failed)
    if isinstance(failed, Exception):
        raise failed
    return over, ""


async def _ended(watcher: Watcher) -> None:
    while not watcher.job.ended:  # noqa: ASYNC110  a watcher has no event for it
        await asyncio.sleep(POLL_SECONDS)


async def _progress(watcher: Watcher, lines: ProgressLines) -> None:
    while True:
        pids = [pid for pids in watcher.log.pids.values() for pid in pids]
        pace = steps_per_second(watcher.log)
        for line in lines.due(watcher.job, watcher.progress, pace, pids, time.monotonic()):
            say(line)
        await asyncio.sleep(POLL_SECONDS)


@contextmanager
def _sizes_typed(driver: LocalDriver, watcher: Watcher) -> Iterator[None]:
    """Scales the job to each number that is typed."""
    loop, scaling = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    # Another process may have the terminal.
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    say("type a number of workers and Enter to change the size of the job, Ctrl-C to stop it")
    read: Callable[[], str] = sys.stdin.readline

    def take() -> None:
        with suppress(OSError):
            if line := read():
                scaling.add(asyncio.ensure_future(_scale(driver, watcher, line.strip())))
                return
        loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, take)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)


async def _scale(driver: LocalDriver, watcher: Watcher, typed: str) -> None:
    sizes = watcher.job.sizes
    if not (typed.isascii() and typed.isdigit() and int(typed) in sizes):
        how = f"type a number from {min(sizes)} to {max(sizes)}"
        say(f"{typed or 'this'} is no size of this job: {how}")
        return
    await driver.scale_job(watcher.name, int(typed))
