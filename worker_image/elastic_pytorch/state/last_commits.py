"""The last commits of a process's States, written to the disk when the process ends: States themselves end with their functions."""

import atexit
import contextlib
import sys
import weakref
from dataclasses import dataclass
from typing import Protocol

from elastic_pytorch.group.rank_group import RankGroup
from elastic_pytorch.log import logger
from elastic_pytorch.memory.state_names import names
from elastic_pytorch.pod import agent_link
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.retention import Keep

LAST_FLUSH_SECONDS = 600.0  # for the last checkpoint of a training that is done


@dataclass(slots=True)
class LastCommit:
    """A State's last commit, and where to write it.

    Attributes:
        version: of the commit.
        folder: of the checkpoints.
        keep: what to keep there.
        steps_done: how many steps of the training are done; the last ones may not be committed.
        asked: whether its flush was requested.
        pressed: whether its flush was requested without a rest.
    """

    version: StateVersion
    folder: str
    keep: Keep
    steps_done: int
    asked: bool = False
    pressed: bool = False

    def flush(self, name: str, *, now: bool) -> None:
        """Requests its flush, unless that was requested already; `now`: without a rest after the write before."""
        if not (self.pressed if now else self.asked):
            self.asked, self.pressed = True, now
            agent_link.pod_client().flush(name, self.version, self.folder, self.keep, now=now)


class Settles(Protocol):
    """Commits whose copies may be in progress."""

    def settle(self, *, wait: bool) -> None:
        """Completes the last one.

        Raises:
            RuntimeError: the GPU has failed.
        """


class Unfinished(Protocol):
    """A State whose last step is counted and not committed yet: the body of the loop may be at work."""

    def complete_at_exit(self) -> None:
        """Commits that step."""


unfinished: "weakref.WeakSet[Unfinished]" = weakref.WeakSet()
under_way: "weakref.WeakSet[Settles]" = weakref.WeakSet()
last_commits: dict[str, LastCommit] = {}  # by their names in the pod's memory; only of rank 0


def give_back(group: RankGroup, done: list[str], count: int) -> None:
    """Releases memories whose States are gone and whose commits are on the disk. Collective, if there are any.

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
            flushed = agent_link.pod_client().flushed(name)
            if flushed is not None and flushed >= commit.version:
                done.append(name)
    return done


@atexit.register
def flush_last_commits() -> None:
    """Requests their flush. An agent carries it out, so that this process can end at once; without one, waits for it."""
    if getattr(sys, "last_value", None) is None:  # an exception may have ended the loop's body during a step
        for state in list(unfinished):
            with contextlib.suppress(RuntimeError):
                state.complete_at_exit()
    for commits in list(under_way):
        with contextlib.suppress(RuntimeError):
            commits.settle(wait=True)
    for name, commit in last_commits.items():
        if commit.steps_done > commit.version.step:
            logger.warning(
                "steps %d to %d are not committed: give State total_steps, or call its flush() at the end",
                commit.version.step + 1,
                commit.steps_done,
            )
        commit.flush(name, now=True)
    if not last_commits:
        return
    client = agent_link.pod_client()
    done = client.deliver(LAST_FLUSH_SECONDS) if agent_link.current() is not None else client.drain(LAST_FLUSH_SECONDS)
    if not done:
        logger.warning("the last commit is not on disk: %s", client.trouble() or "it took too long")
