"""A folder or prefix that all ranks share, and in which rank 0 acts."""

import errno
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.group.broadcast import global_rank
from elastic_pytorch.group.rank_group import RankGroup, TorchGroup
from elastic_pytorch.log import logger
from elastic_pytorch.object_url import Location, ObjectUrl
from elastic_pytorch.state.restore import READ_SECONDS, claim, when_readable
from elastic_pytorch.state.source import NONE
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import Superseded, by_name, claimed
from elastic_pytorch.storage.checkpoint_format import SHARDED
from elastic_pytorch.storage.places import place_at
from elastic_pytorch.storage.sharded_folder import new_token

SEEN_SECONDS = 60.0  # in which all ranks should see a change that one sees
POLL_SECONDS = 0.5

_SUPERSEDED = -1  # beside the numbers of errno
_TOKEN = ".seen-by-all-ranks-"


def refuse_unshared(folder: Location | None, group: Any, *, needed: bool) -> None:
    """Raises an OSError, on all ranks, unless all see a file that rank 0 writes. Collective.

    `needed` says whether nothing else has the state. Otherwise a folder that takes no writes at the
    moment does not end the training.
    """
    if folder is None:
        return
    place, in_objects = place_at(folder), isinstance(folder, ObjectUrl)

    def leave_token() -> int:
        token = new_token()
        try:
            place.put(f"{_TOKEN}{token:016x}", [b""], 0, lambda: None)
        except OSError as error:
            if not needed:
                logger.warning(
                    "cannot write to %s: %s; training goes on, without checkpoints until it can be",
                    folder,
                    error,
                )
                return 0
            raise OSError(
                error.errno or errno.EIO,
                f"rank 0 cannot write to {folder}, so no checkpoint could be saved: "
                f"{error.strerror}"
                + ("" if in_objects else ". Mount a volume there that is writable and has room"),
            ) from error
        return token

    if not (token := first_does(leave_token, group)):
        return
    name = f"{_TOKEN}{token:016x}"
    try:
        until_seen(lambda: place.open(name).close())
        sees = True
    except OSError:
        sees = False
    ranks = TorchGroup(group)
    try:
        seen_by = [bool(each) for (each,) in ranks.gather([int(sees)])]
    finally:
        if ranks.rank == 0:
            place.delete([name])
    if not all(seen_by):
        remedy = (
            "Give all pods the same bucket and credentials"
            if in_objects
            else "Mount a volume there that all pods share (accessModes: ReadWriteMany)"
        )
        raise OSError(
            errno.ENOENT,
            f"{folder} is not one folder for all ranks: rank {seen_by.index(False)} does not see "
            f"what rank 0 has written there, so no checkpoint could be whole. {remedy}",
        )


def claim_folder(folder: Location | None, known: int, group: RankGroup) -> tuple[StateVersion, int]:
    """Returns a folder's newest version, whole or not, and the group's generation. Collective.

    `known` is the newest generation in the pods' memory.
    """
    if folder is None:
        return NONE, known + 1

    def read_and_claim() -> list[int]:
        newest = next((version for version, _ in by_name(folder, SHARDED)), NONE)
        return [*newest, claim(str(folder), max(known, newest.generation, claimed(folder)) + 1)]

    newest, step, generation = when_readable(
        group, read_and_claim, str(folder), seconds=READ_SECONDS if known else 0.0
    )
    return StateVersion(newest, step), generation


def until_seen(look: Callable[[], object]) -> None:
    """Repeats `look` until this rank sees another one's change, as storage may show it later."""
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        try:
            look()
            return
        except (ValueError, FileNotFoundError, NotADirectoryError) as error:
            if time.monotonic() >= deadline:
                raise OSError(
                    errno.ESTALE, f"rank 0 sees it whole, and this rank does not: {error}"
                ) from error
        time.sleep(POLL_SECONDS)


def first_does(action: Callable[[], int], group: Any) -> int:
    """Runs an action on rank 0; all ranks return its number, or raise its error."""
    problem: OSError | Superseded | None = None
    outcome = torch.zeros(2, dtype=torch.int64)
    if dist.get_rank(group) == 0:
        try:
            outcome[1] = action()
        except OSError as error:
            problem, outcome[0] = error, error.errno or errno.EIO
        except Superseded as error:
            problem, outcome[0] = error, _SUPERSEDED
    dist.broadcast(outcome, global_rank(0, group), group=group)
    code, number = outcome.tolist()
    if problem is not None:
        raise problem
    if code == _SUPERSEDED:
        raise Superseded("rank 0 has found the folder claimed by a newer group")
    if code:
        raise OSError(code, f"{os.strerror(code)}, on rank 0")
    return int(number)
