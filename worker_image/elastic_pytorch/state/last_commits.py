"""The end of a process's trainings: their last steps are on the disk, or the exit is an error."""

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, Protocol

from elastic_pytorch.failures.error_file import write_error_file
from elastic_pytorch.group.rank_group import RankGroup
from elastic_pytorch.log import logger
from elastic_pytorch.memory.state_names import names
from elastic_pytorch.pod import agent_link
from elastic_pytorch.pod.planned_stop import script_end
from elastic_pytorch.progress.report import has_agent, report_failed_saves, report_saving
from elastic_pytorch.state import commits
from elastic_pytorch.state.step_boundary import turns
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.retention import Keep
from elastic_pytorch.torch_fixes import destroy_deadlock

# For the last checkpoint of a training that is done, where there is no operator.
LAST_FLUSH_SECONDS = 600.0
RETRY_SECONDS = 1.0  # from a failed write to the next
POLL_SECONDS = 0.5  # between two checks whether the group changes
NOT_WRITTEN, NOT_SAVED = "LastCheckpointNotWritten", "StepsNotSaved"  # names of errors


@dataclass(slots=True)
class LastCommit:
    version: StateVersion
    folder: str
    keep: Keep
    requested: bool = False
    requested_now: bool = False

    def flush(self, name: str, *, now: bool) -> None:
        """Requests its flush once; `now`: without a rest after the write before."""
        if not (self.requested_now if now else self.requested):
            self.requested, self.requested_now = True, now
            agent_link.pod_client().flush(name, self.folder, self.keep, now=now)

    def written(self, name: str) -> bool:
        flushed = agent_link.pod_client().flushed(name)
        return flushed is not None and flushed >= self.version


class Unfinished(Protocol):
    """A State with steps that only this process has."""

    def _complete_at_exit(self) -> None:
        """Commits or saves that step, or raises a RuntimeError or OSError; for all ranks."""

    def _unsaved(self) -> str:
        """Returns which steps the end of this process would lose, in words; empty: none."""


# In the order in which they began, the same on all ranks. Strong: a State may be a local variable
# of a function that has returned.
unfinished: dict[Unfinished, None] = {}
last_commits: dict[str, LastCommit] = {}  # by name in the pod's memory; on rank 0 only


def _leave_to_parent() -> None:
    """For a forked process, whose exit handlers run like the worker's."""
    unfinished.clear()
    commits.under_way.clear()
    last_commits.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def saving() -> Iterator[None]:
    report_saving(True)
    try:
        yield
    finally:
        report_saving(False)


def give_back(group: RankGroup, done: list[str], count: int) -> None:
    """Releases what `given_up` has found on rank 0. Collective, unless `count` is 0."""
    for name in group.broadcast(done, 0) if count else ():
        if name in names.left():
            names.forget(name)
            last_commits.pop(name, None)
            agent_link.pod_client().drop(name)


def given_up() -> list[str]:
    """Returns memories without a State whose last commit is on the disk, and flushes the others."""
    done = []
    for name in names.left():
        if (commit := last_commits.get(name)) is not None:
            commit.flush(name, now=True)
            if commit.written(name):
                done.append(name)
    return done


def complete() -> None:
    for state in list(unfinished):
        state._complete_at_exit()


def end_group() -> None:
    # An exception has ended the loop's body during a step, or stops the script.
    if sys.exc_info()[0] is None:
        turns.complete()
        complete()


destroy_deadlock.before_destroy(end_group)


@atexit.register
def end_training() -> None:
    """A process that fails, or stops for another group, leaves the writes to its agent, if any."""
    well = getattr(sys, "last_value", None) is None and not script_end.begun
    if well:
        script_end.over = True
        try:
            complete()
        except (RuntimeError, OSError) as error:
            _fail(type(error).__name__, str(error))
    for each in list(commits.under_way):
        with contextlib.suppress(RuntimeError):
            each.settle(wait=True)
    for name, commit in last_commits.items():
        commit.flush(name, now=True)
    if not well:
        if last_commits:
            client = agent_link.pod_client()
            hand_over = client.deliver if agent_link.current() else client.drain
            hand_over(LAST_FLUSH_SECONDS)
        return
    if lost := _wait_until_written():
        _fail(NOT_WRITTEN, f"the last commit is not on the disk: {lost}")
    if lost := "; ".join(filter(None, (state._unsaved() for state in unfinished))):
        _fail(NOT_SAVED, lost)


def _wait_until_written() -> str:
    """Returns why a last commit is not written; empty: all are.

    An operator, if there is one, decides how long that may take, and ends the job.
    """
    if not last_commits:
        return ""
    agent, deadline = agent_link.current(), time.monotonic() + LAST_FLUSH_SECONDS
    client = agent_link.pod_client()
    with saving():
        while left := {
            name: commit for name, commit in last_commits.items() if not commit.written(name)
        }:
            if agent is not None and agent.wanted():  # the next group saves what this one has
                agent.stop_process()
            trouble = next(filter(None, map(client.trouble, left)), "")
            if time.monotonic() >= deadline and not has_agent():
                return trouble or "it took too long"
            if trouble:
                report_failed_saves(max(map(client.failed_flushes, left)), trouble)
                time.sleep(RETRY_SECONDS)
                for name, commit in left.items():
                    commit.requested_now = False
                    commit.flush(name, now=True)
            if client.drain(POLL_SECONDS) and not all(
                commit.written(name) for name, commit in left.items()
            ):
                return "its copy in memory was not valid, as the log says"
    return ""


def _fail(error: str, message: str) -> NoReturn:
    write_error_file(error, message, "")
    logger.error("%s: %s", error, message)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a script may have replaced it
            stream.flush()
    os._exit(1)
