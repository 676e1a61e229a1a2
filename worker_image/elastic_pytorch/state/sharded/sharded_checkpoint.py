"""The checkpoint of a sharded model: all ranks write it, and a group of any size reads it.

Each rank writes its shards with torch.distributed.checkpoint; rank 0 writes everything else to a
checkpoint file beside them. Torch reads its own metadata file with pickle: load only what you have
written.
"""

import errno
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from elastic_pytorch.group.broadcast import broadcast_tree
from elastic_pytorch.group.rank_group import TorchGroup, gather_objects
from elastic_pytorch.log import logger
from elastic_pytorch.object_url import Location
from elastic_pytorch.state.sharded.optimizer_states import (
    load_by_name,
    state_by_name,
    template_by_name,
)
from elastic_pytorch.state.sharded.regions import local_part
from elastic_pytorch.state.sharded.shard_files import (
    check_files,
    checked_by,
    shard_reader,
    shard_writer,
    written_by,
)
from elastic_pytorch.state.sharded.shared_folder import first_does, until_seen
from elastic_pytorch.state.sharded.trees import Keys, Tree, insert, name_of, taken_apart
from elastic_pytorch.state.values.trained import Trained
from elastic_pytorch.state_format.payload import payload_chunks
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_file import DAMAGE, load_version
from elastic_pytorch.storage.checkpoint_folder import Checkpoint, by_name, write
from elastic_pytorch.storage.checkpoint_format import SHARDED
from elastic_pytorch.storage.checkpoint_format import name_of as name_of_file
from elastic_pytorch.storage.retention import Keep
from elastic_pytorch.storage.sharded_folder import (
    ShardFile,
    check_sizes,
    describe_files,
    drafts_in,
    files_of,
    sync_files,
)

ENGINE = "engine"  # the sub-folder of an engine's own files

# A rank's findings about a checkpoint, the worst last.
WHOLE, DAMAGED, UNREADABLE = range(3)


class Engine(Protocol):
    """A part of the training with its own format, such as DeepSpeed's engine."""

    def save(self, folder: Path) -> None:
        """Writes to a new folder. Collective.

        Raises no OSError: the other ranks would not know of it.
        """

    def load(self, folder: Path) -> None:
        """Reads a folder that a group of any size has written. Collective."""


def states_of(registered: dict[str, Any]) -> Tree:
    return {
        name: state_by_name(each, registered) if isinstance(each, Optimizer) else each.state_dict()
        for name, each in registered.items()
    }


def template_of(registered: dict[str, Any], saved: Collection[Keys]) -> Tree:
    """Returns a tree of the registered objects, to be filled with the saved tensors.

    A `Trained` may have frozen some since, and an optimizer that has made no step has none.
    """
    states = states_of(registered)
    for name, each in registered.items():
        own = {keys[2:] for keys in saved if keys[1] == name}
        if isinstance(each, Trained):
            states[name] = each.template(own)
        elif isinstance(each, Optimizer):
            states[name] = template_by_name(
                each, registered, {parameter for _, parameter, *_ in own}
            )
    return {"objects": states}


def load_state(registered: dict[str, Any], each: Any, state: Any) -> None:
    if isinstance(each, Optimizer):
        load_by_name(each, registered, state)
    else:
        each.load_state_dict(state)


def save_sharded(
    folder: Location,
    version: StateVersion,
    tree: Tree,
    keep: Keep,
    *,
    stages: Sequence[int] = (),
    group: Any = None,
    engine: Engine | None = None,
) -> None:
    """Writes a checkpoint. Collective; all ranks wait for the disk, and raise if one cannot write.

    An engine writes files of its own beside it, only in a folder. If a newer group has claimed the
    folder (`Superseded`), or the write fails, nothing that was there is deleted.
    """
    rank = dist.get_rank(group)
    drafts = drafts_in(folder)
    token = first_does(lambda: drafts.begin(version), group)
    draft = drafts.location(version, token)
    shards, rest = taken_apart(tree)
    try:
        written = _write_shards(draft, shards, group) if shards or engine is None else list
        names = _written_by_engine(engine, draft, group) if engine is not None else []

        def write_stage() -> list[str]:
            if not stages or rank == 0 or stages.index(stages[rank]) < rank:
                return []
            content = {"rest": rest, "shards": list(shards)}
            own = _stage_folder(draft, stages[rank])
            return [f"{own.name}/{write(own, version, payload_chunks(content), keep=1).name}"]

        gathered = gather_objects(_written_by(draft, written, names, write_stage), group)
        for of_rank in gathered:
            if isinstance(of_rank, OSError):
                raise of_rank

        def end() -> int:
            files = [file for of_rank in gathered for file in of_rank]
            try:
                check_sizes(draft, files)
            except FileNotFoundError as error:
                raise OSError(
                    errno.ENOENT,
                    f"{folder} is not one folder for all ranks: "
                    f"rank 0 does not see all that they have written ({error})",
                ) from error
            except ValueError as error:
                raise OSError(
                    errno.EIO, f"{folder} has not kept what was written: {error}"
                ) from error
            content = {
                "rest": rest,
                "shards": list(shards),
                "files": [tuple(file) for file in files],
                "stages": list(dict.fromkeys(stages)),  # this one's is the first
            }
            drafts.publish(
                version, token, keep, lambda: write(draft, version, payload_chunks(content), keep=1)
            )
            return 0

        first_does(end, group)
    except BaseException:
        if rank == 0:
            drafts.discard(version, token)
        raise


def _stage_folder(checkpoint: Location, stage: int) -> Location:
    """Returns the folder of a stage's unsharded values, but for rank 0's stage."""
    return checkpoint / f"stage-{stage}"


def _written_by(
    draft: Location,
    written: Callable[[], list[ShardFile]],
    of_engine: list[str],
    write_stage: Callable[[], list[str]],
) -> list[ShardFile] | OSError:
    try:
        others = [*of_engine, *write_stage()]
        if isinstance(draft, Path):
            sync_files(draft, others)
        return [*written(), *(describe_files(draft, others) if others else ())]
    except OSError as error:
        return error


def _written_by_engine(engine: Engine, draft: Location, group: Any) -> list[str]:
    """Returns this rank's part of an engine's files; one rank has each."""
    assert isinstance(draft, Path)
    engine.save(draft / ENGINE)
    own = {str(path.relative_to(draft)) for path in (draft / ENGINE).rglob("*") if path.is_file()}
    seen: list[set[str]] = gather_objects(own, group)
    ranks = {
        name: [other for other, names in enumerate(seen) if name in names]
        for name in sorted(set().union(*seen))
    }
    return [
        name
        for number, (name, seers) in enumerate(ranks.items())
        if seers[number % len(seers)] == dist.get_rank(group)
    ]


def _write_shards(
    draft: Location, shards: dict[Keys, DTensor], group: Any
) -> Callable[[], list[ShardFile]]:
    writer = shard_writer(draft, sum(local_part(tensor).nbytes for tensor in shards.values()))
    try:
        write_shards(_by_name(shards), storage_writer=writer, process_group=group)
    except CheckpointException as error:
        raise plain_error(error) from error
    return lambda: written_by(writer, draft, dist.get_rank(group))


def load_sharded(
    folder: Location,
    template: Callable[[Collection[Keys]], Tree],
    *,
    stages: Sequence[int] = (),
    group: Any = None,
    engine: Engine | None = None,
) -> tuple[StateVersion, Tree] | None:
    """Reads the newest whole checkpoint, of a group of any size, if there is one. Collective.

    `template` gets the keys of its sharded tensors, and returns a tree with those to be filled. The
    result is the version, and the saved tree with these tensors in it.
    """
    for version, path in _candidates(folder, group):
        held: dict[str, bytearray] = {}
        content = _content_if_whole(path, version, held, group)
        if content is not None and (len(set(stages)) > 1 or len(content.get("stages", ())) > 1):
            content = _content_of_stage(path, version, content, stages, group)
        if content is None:
            continue
        saved = set(map(tuple, content["shards"]))
        shards, _ = taken_apart(template(saved))
        missing = saved ^ shards.keys()
        if missing:
            raise RuntimeError(
                f"checkpoint {path.name} does not fit: {name_of(min(missing, key=str))} is in one "
                "of them only"
            )
        try:
            if shards or engine is None:
                read_shards(
                    _by_name(shards), storage_reader=shard_reader(path, held), process_group=group
                )
        except CheckpointException as error:
            raise plain_error(error) from error
        if engine is not None:
            assert isinstance(path, Path)
            engine.load(path / ENGINE)
        whole: Tree = content["rest"]
        for keys, tensor in shards.items():
            insert(whole, keys, tensor)
        return version, whole
    return None


def _candidates(folder: Location, group: Any) -> list[Checkpoint]:
    """Returns rank 0's list, as checkpoints may come or go at this moment."""
    found: list[Checkpoint] = []

    def look() -> int:
        found.extend(by_name(folder, SHARDED))
        return len(found)

    if not first_does(look, group):
        return []
    numbers = broadcast_tree([version for version, _ in found], 0, group)
    versions = [StateVersion(generation, step) for generation, step in numbers]
    return [Checkpoint(version, folder / name_of_file(version, SHARDED)) for version in versions]


def _content_if_whole(
    path: Location, version: StateVersion, held: dict[str, bytearray], group: Any
) -> Tree | None:
    """Returns rank 0's content if all files are whole; each rank checks some, and may hold them."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    content: Tree | None = None
    files: list[ShardFile] = []

    def look() -> None:
        nonlocal content, files
        content = load_version(path / name_of_file(version), version)
        files = files_of(content)
        check_sizes(path, files)

    def check() -> None:
        held.update(check_files(path, checked_by(files, rank, world_size)))

    # Rank 0 reads first, so that the checkpoint exists, even if other ranks do not see it yet.
    if not _whole_for_all(look if rank == 0 else None, path, group):
        return None
    if not _whole_for_all(None if rank == 0 else lambda: until_seen(look), path, group):
        return None
    return content if _whole_for_all(check, path, group) else None


def _content_of_stage(
    path: Location, version: StateVersion, content: Tree, stages: Sequence[int], group: Any
) -> Tree | None:
    saved: list[int] = content.get("stages", [])
    if set(saved) != set(stages):
        raise RuntimeError(
            f"checkpoint {path.name} does not fit: it is cut into {len(saved)} stages of other "
            "parameters"
        )
    stage = stages[dist.get_rank(group)]
    own: Tree | None = content if stage == saved[0] else None

    def look() -> None:
        nonlocal own
        own = load_version(_stage_folder(path, stage) / name_of_file(version), version)

    return own if _whole_for_all(look if own is None else None, path, group) else None


def _whole_for_all(action: Callable[[], None] | None, path: Location, group: Any) -> bool:
    """Whether the ranks' actions find a checkpoint whole; raises if a rank cannot read it."""
    problem: Exception | None = None
    found = WHOLE
    try:
        if action is not None:
            action()
    except DAMAGE as error:
        logger.warning("checkpoint %s is skipped: %s", path, error)
        found = DAMAGED
    except (OSError, MemoryError) as error:
        problem, found = error, UNREADABLE
    worst = max(each for (each,) in TorchGroup(group).gather([found]))
    if worst == UNREADABLE:
        raise problem or OSError(
            f"a rank cannot read the checkpoint {path}; training must not go on from an older one"
        )
    return worst == WHOLE


def _by_name(shards: dict[Keys, DTensor]) -> dict[str, Any]:
    return {name_of(keys): tensor for keys, tensor in shards.items()}


def plain_error(error: CheckpointException) -> OSError | RuntimeError:
    """Returns the cause, as an error of the disk is no failure of the training."""
    rank, (cause, _) = min(error.failures.items())
    if isinstance(cause, OSError):
        return OSError(cause.errno or errno.EIO, f"{cause.strerror or cause}, on rank {rank}")
    return RuntimeError(f"rank {rank}: {type(cause).__name__}: {cause}")
