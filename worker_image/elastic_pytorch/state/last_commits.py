"""The end of a process's trainings: what their States have done last is on the disk before the process ends, or it ends with an error.

So a process that has ended well has saved all. States themselves end with their functions.
"""

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

# For the last checkpoint of a training that is done, where no operator knows of it.
LAST_FLUSH_SECONDS = 600.0
RETRY_SECONDS = 1.0  # from a failed write to the next
POLL_SECONDS = 0.5  # between two looks at whether the group changes
NOT_WRITTEN, NOT_SAVED = "LastCheckpointNotWritten", "StepsNotSaved"  # as errors have them


@dataclass(slots=True)
class LastCommit:
    """A State's last commit, and where to write it.

    Attributes:
        asked: whether its flush was requested.
        pressed: whether its flush was requested without a rest.
    """

    version: StateVersion
    folder: str
    keep: Keep
    asked: bool = False
    pressed: bool = False

    def flush(self, name: str, *, now: bool) -> None:
        """Requests its flush, unless that was requested already; `now`: without a rest after the write before."""
        if not (self.pressed if now else self.asked):
            self.asked, self.pressed = True, now
            agent_link.pod_client().flush(name, self.version, self.folder, self.keep, now=now)

    def written(self, name: str) -> bool:
        """Whether it is on the disk."""
        flushed = agent_link.pod_client().flushed(name)
        return flushed is not None and flushed >= self.version


class Unfinished(Protocol):
    """A State whose last steps nothing has that outlives this process, or whose last step is counted and not committed yet."""

    def _complete_at_exit(self) -> None:
        """Commits that step, or has it saved. All ranks may have to call it.

        Raises:
            RuntimeError: it cannot be; or a peer is lost.
            OSError: likewise.
        """

    def _unsaved(self) -> str:
        """Returns which steps would be lost if this process ended now, for people; empty: none, or it has no folder."""


# In the order in which they began, the same on all ranks. Strong: a State may be a local variable
# of the function that was left.
unfinished: dict[Unfinished, None] = {}
last_commits: dict[str, LastCommit] = {}  # by their names in the pod's memory; only of rank 0


def _leave_to_parent() -> None:
    """Called in a forked process, whose exit handlers run like the worker's."""
    unfinished.clear()
    commits.under_way.clear()
    last_commits.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """Reports meanwhile that the training waits for its last checkpoint."""
    report_saving(True)
    try:
        yield
    finally:
        report_saving(False)


def give_back(group: RankGroup, done: list[str], count: int) -> None:
    """Releases memories whose States are gone and whose commits are on the disk.

    Collective, if there are any.

    Args:
        group: all ranks.
        done: their names, on rank 0: only it knows.
        count: how many these are.
    """
    for name in group.broadcast(done, 0) if count else ():
        if name in names.left():
            names.forget(name)
            last_commits.pop(name, None)
            agent_link.pod_client().drop(name)


def given_up() -> list[str]:
    """Returns the memories whose States are gone and whose last commit is on the disk, and requests the flush of the others."""
    done = []
    for name in names.left():
        if (commit := last_commits.get(name)) is not None:
            commit.flush(name, now=True)
            if commit.written(name):
                done.append(name)
    return done


def complete() -> None:
    """Has each State save what nothing has.

    Of a sharded one all ranks have a part, so this comes before their group is destroyed.

    Raises:
        RuntimeError: a peer is lost.
        OSError: it cannot be saved.
    """
    for state in list(unfinished):
        state._complete_at_exit()


def end_group() -> None:
    """Completes the step that is counted, while all ranks are there, and saves what nothing has."""
    # Else it has ended the loop's body during a step; or the script is being stopped.
    if sys.exc_info()[0] is None:
        turns.complete()
        complete()


destroy_deadlock.before_destroy(end_group)


@atexit.register
def end_training() -> None:
    """Completes what is done, and waits until it is on the disk; ends the process with an error if that cannot be.

    A process that fails, or is stopped for another group, leaves the writes to its agent, if it has
    one.
    """
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
            _ = (
                client.deliver(LAST_FLUSH_SECONDS)
                if agent_link.current()
                else client.drain(LAST_FLUSH_SECONDS)
            )
        return
    if lost := _wait_until_written():
        _fail(NOT_WRITTEN, f"the last commit is not on the disk: {lost}")
    if lost := "; ".join(filter(None, (state._unsaved() for state in unfinished))):
        _fail(NOT_SAVED, lost)


def _wait_until_written() -> str:
    """Waits until all last commits are on the disk, and requests again what could not be written; returns why one is not, or nothing.

    Where there is an operator, it says how long that may take, and ends the job.
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
                agent.stop_process(max(commit.version.step for commit in left.values()))
            trouble = next(filter(None, map(client.trouble, left)), "")
            if time.monotonic() >= deadline and not has_agent():
                return trouble or "it took too long"
            if trouble:
                report_failed_saves(max(map(client.failed_flushes, left)), trouble)
                time.sleep(RETRY_SECONDS)
                for name, commit in left.items():
                    commit.pressed = False
                    commit.flush(name, now=True)
            client.drain(POLL_SECONDS)
    return ""


def _fail(error: str, message: str) -> NoReturn:
    """Ends this process, whose script has ended well: an exit handler cannot do it otherwise."""
    write_error_file(error, message, "")
    logger.error("%s: %s", error, message)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a script may have replaced it
            stream.flush()
    os._exit(1)
