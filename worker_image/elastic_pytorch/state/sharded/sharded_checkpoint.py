"""The state of a model that is sharded over the ranks (FSDP2's fully_shard): saved by all of them, read by a group of any size.

Each rank writes its shards with torch.distributed.checkpoint; rank 0 writes everything else to a checkpoint file beside them. All ranks
must share the folder. Torch reads its own metadata file with pickle: load only what you have written.
"""

import errno
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from elastic_pytorch.log import logger
from elastic_pytorch.state.sharded.shared_folder import first_does, global_rank_of_first, until_seen
from elastic_pytorch.state.sharded.trees import Keys, Tree, insert, name_of, taken_apart
from elastic_pytorch.state.values.registered import model_of
from elastic_pytorch.state.values.trained import Trained
from elastic_pytorch.state_format.payload import payload_chunks
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_file import load
from elastic_pytorch.storage.checkpoint_folder import newest, write
from elastic_pytorch.storage.sharded_folder import (
    ShardFile,
    check_checksums,
    check_claim,
    check_sizes,
    describe_files,
    new_token,
    partial_path,
    path_of,
    publish,
    sharded_checkpoints,
    sync_files,
)

ENGINE = "engine"  # the sub-folder of what an engine writes by itself

# A rank's findings about a checkpoint, the worst last.
WHOLE, DAMAGED, UNREADABLE = range(3)


class Engine(Protocol):
    """A part of the training that all ranks together write in a format of its own, such as DeepSpeed's engine."""

    def save(self, folder: Path) -> None:
        """Writes it to a new folder. Collective. Raises no OSError: the other ranks would not know of it."""

    def load(self, folder: Path) -> None:
        """Reads it from a folder that a group of any size has written. Collective."""


# --- the objects that are registered with a State ---------------------------------------------------------------------


def states_of(registered: dict[str, Any]) -> Tree:
    """Returns the states of the registered objects. Those of optimizers use the names of their model's parameters, as all ranks know them.

    Raises:
        ValueError: an optimizer's model is not registered.
    """
    return {
        name: get_optimizer_state_dict(_model_of(each, registered), each) if isinstance(each, Optimizer) else each.state_dict()
        for name, each in registered.items()
    }


def template_of(registered: dict[str, Any], saved: Collection[Keys]) -> Tree:
    """Returns a tree of what is registered, to be filled.

    Args:
        registered: the objects, by name.
        saved: the keys of the sharded tensors that are there: what a `Trained` has kept may be frozen now.
    """
    states = states_of(registered)
    for name, each in registered.items():
        if isinstance(each, Trained):
            states[name] = each.template({keys[2:] for keys in saved if keys[1] == name})
    return {"objects": states}


def put_back(registered: dict[str, Any], states: Tree) -> None:
    """Loads states that `states_of` returned and `load_sharded` has filled into the registered objects.

    Raises:
        RuntimeError: a state does not fit.
        ValueError: an optimizer's model is not registered.
    """
    for name, each in registered.items():
        if isinstance(each, Optimizer):
            set_optimizer_state_dict(_model_of(each, registered), each, states[name])
        else:
            try:
                each.load_state_dict(states[name])
            except Exception as error:
                raise RuntimeError(f"the checkpoint does not fit the {name} of this script: {error}") from error


def _model_of(optimizer: Optimizer, registered: dict[str, Any]) -> nn.Module:
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for each in map(model_of, registered.values()):
        if isinstance(each, nn.Module) and own <= {id(parameter) for parameter in each.parameters()}:
            return each
    raise ValueError("a sharded optimizer is saved by the names of its parameters: register the model that they belong to, too")


# --- saving -----------------------------------------------------------------------------------------------------------


def save_sharded(
    folder: Path,
    version: StateVersion,
    tree: Tree,
    keep: int,
    *,
    stages: Sequence[int] = (),
    group: Any = None,
    engine: Engine | None = None,
) -> None:
    """Writes a checkpoint. Collective; all ranks wait until it is on the disk, and all raise if one cannot write.

    Args:
        folder: of the checkpoints, shared by all ranks; created if it does not exist.
        version: of the state.
        tree: dicts and lists of values that a checkpoint file can hold, and of sharded tensors.
        keep: how many checkpoints to leave there.
        stages: of the ranks, in a pipeline.
        group: of a backend that sends CPU tensors; None: the default group.
        engine: what writes files of its own beside the tree.

    Raises:
        Superseded: a newer group has claimed the folder.
        OSError: it could not be written; nothing that was there has been deleted.
        RuntimeError: a peer is lost.
    """
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)

    def begin() -> int:
        folder.mkdir(parents=True, exist_ok=True)
        check_claim(folder, version)
        token = new_token()
        partial_path(folder, version, token).mkdir()
        return token

    partial = partial_path(folder, version, first_does(begin, group))
    shards, rest = taken_apart(tree)
    try:
        if shards or engine is None:
            _write_shards(partial, shards, group)
        names = _written_by_engine(engine, partial, group) if engine is not None else []
        gathered: list[Any] = [None] * world_size

        def write_stage() -> list[str]:
            if not stages or rank == 0 or stages.index(stages[rank]) < rank:
                return []
            content = {"rest": rest, "shards": list(shards)}
            own = _stage_folder(partial, stages[rank])
            path = write(own, version, payload_chunks(content), keep=1)
            return [str((own / path.name).relative_to(partial))]

        dist.all_gather_object(gathered, _written_by(rank, partial, names, write_stage), group=group)
        for of_rank in gathered:
            if isinstance(of_rank, OSError):
                raise of_rank

        def end() -> int:
            files = [file for of_rank in gathered for file in of_rank]
            missing = [file.name for file in files if not (partial / file.name).exists()]
            if missing:
                raise OSError(errno.ENOENT, f"{folder} is not one folder for all ranks: rank 0 does not see {missing[0]}")
            content = {"rest": rest, "shards": list(shards), "files": [tuple(file) for file in files]}
            content["stages"] = list(dict.fromkeys(stages))  # this one's is the first
            write(partial, version, payload_chunks(content), keep=1)
            publish(partial, folder, version, keep)
            return 0

        first_does(end, group)
    except BaseException:
        if rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def _stage_folder(checkpoint: Path, stage: int) -> Path:
    """Returns the folder of what is not sharded of a stage; that of rank 0's stage is in the checkpoint's own file."""
    return checkpoint / f"stage-{stage}"


def _written_by(
    rank: int, partial: Path, of_engine: list[str], write_stage: Callable[[], list[str]]
) -> list[ShardFile] | OSError:
    try:
        of_engine = [*of_engine, *write_stage()]
        sync_files(partial, of_engine)
        own = [path.name for mine in (f"__{rank}_*", *([".metadata"] if rank == 0 else [])) for path in partial.glob(mine)]
        return describe_files(partial, [*own, *of_engine])
    except OSError as error:
        return error


def _written_by_engine(engine: Engine, partial: Path, group: Any) -> list[str]:
    """Returns this rank's part of the files that an engine writes, by their paths in the checkpoint. Each is of one rank, which sees it."""
    engine.save(partial / ENGINE)
    seen = [set[str]() for _ in range(dist.get_world_size(group))]
    own = {str(path.relative_to(partial)) for path in (partial / ENGINE).rglob("*") if path.is_file()}
    dist.all_gather_object(seen, own, group=group)
    ranks = {name: [other for other, names in enumerate(seen) if name in names] for name in sorted(set().union(*seen))}
    return [name for number, (name, seers) in enumerate(ranks.items()) if seers[number % len(seers)] == dist.get_rank(group)]


def _write_shards(partial: Path, shards: dict[Keys, DTensor], group: Any) -> None:
    try:
        write_shards(_by_name(shards), storage_writer=FileSystemWriter(partial), process_group=group)
    except CheckpointException as error:
        raise plain_error(error) from error


# --- loading ----------------------------------------------------------------------------------------------------------


def load_sharded(
    folder: Path,
    template: Callable[[Collection[Keys]], Tree],
    *,
    stages: Sequence[int] = (),
    group: Any = None,
    engine: Engine | None = None,
) -> tuple[StateVersion, Tree] | None:
    """Reads the newest whole checkpoint, whatever the size of the group that wrote it. Collective.

    Args:
        folder: of the checkpoints, shared by all ranks.
        template: returns a tree with the sharded tensors to be filled; called if there is a checkpoint, with the keys of those in it.
        stages: of the ranks, in a pipeline.
        group: of a backend that sends CPU tensors; None: the default group.
        engine: what reads files of its own beside the tree.

    Returns:
        The version, and the tree that was saved with the template's tensors in it, filled; None: there is no checkpoint.

    Raises:
        OSError: the folder cannot be read.
        RuntimeError: the checkpoint does not fit the template; or a peer is lost.
    """
    for version, path in _candidates(folder, group):
        content = _content_if_whole(path, version, group)
        if content is not None and (len(set(stages)) > 1 or len(content.get("stages", ())) > 1):
            content = _content_of_stage(path, version, content, stages, group)
        if content is None:
            continue
        saved = set(map(tuple, content["shards"]))
        shards, _ = taken_apart(template(saved))
        missing = saved ^ shards.keys()
        if missing:
            raise RuntimeError(f"checkpoint {path.name} does not fit: {name_of(min(missing, key=str))} is in one of them only")
        try:
            if shards or engine is None:
                read_shards(_by_name(shards), storage_reader=FileSystemReader(path), process_group=group)
        except CheckpointException as error:
            raise plain_error(error) from error
        if engine is not None:
            engine.load(path / ENGINE)
        whole: Tree = content["rest"]
        for keys, tensor in shards.items():
            insert(whole, keys, tensor)
        return version, whole
    return None


def _candidates(folder: Path, group: Any) -> list[tuple[StateVersion, Path]]:
    """Returns the checkpoints that rank 0 sees, on all ranks: one may be written or deleted at this moment."""
    found: list[tuple[StateVersion, Path]] = []

    def look() -> int:
        found.extend(sharded_checkpoints(folder))
        return len(found)

    count = first_does(look, group)
    if not count:
        return []
    numbers = (
        torch.tensor([version for version, _ in found], dtype=torch.int64)
        if found
        else torch.zeros(count, 2, dtype=torch.int64)
    )
    dist.broadcast(numbers, global_rank_of_first(group), group=group)
    versions = [StateVersion(generation, step) for generation, step in numbers.tolist()]
    return [(version, path_of(folder, version)) for version in versions]


def _content_if_whole(path: Path, version: StateVersion, group: Any) -> Tree | None:
    """Returns what rank 0 has saved beside the shards, if all files are whole; each rank checks a part of them."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    content: Tree | None = None

    def look() -> None:
        nonlocal content
        content = _content(path, version)

    def check() -> None:
        assert content is not None
        check_checksums(path, [ShardFile(*file) for file in content["files"]][rank::world_size])

    # Rank 0 reads first: what it sees exists, whether other ranks see it yet or not.
    if not _whole_for_all(look if rank == 0 else _nothing, path, group):
        return None
    if not _whole_for_all(_nothing if rank == 0 else lambda: until_seen(look), path, group):
        return None
    return content if _whole_for_all(check, path, group) else None


def _content_of_stage(path: Path, version: StateVersion, content: Tree, stages: Sequence[int], group: Any) -> Tree | None:
    """Returns what was saved beside the shards of this rank's stage; None: the checkpoint is not whole.

    Raises:
        RuntimeError: the pipeline had other stages; on all ranks alike.
    """
    saved: list[int] = content.get("stages", [])
    if set(saved) != set(stages):
        raise RuntimeError(f"checkpoint {path.name} does not fit: it is cut into {len(saved)} stages of other parameters")
    stage = stages[dist.get_rank(group)]
    own: Tree | None = content if stage == saved[0] else None

    def look() -> None:
        nonlocal own
        file = next(newest(_stage_folder(path, stage)), None)
        if file is None or file.version != version:
            raise ValueError("the file of a stage is missing or not whole")
        own = load(file.path)[1]

    return own if _whole_for_all(look if own is None else _nothing, path, group) else None


def _content(path: Path, version: StateVersion) -> Tree:
    """Returns what rank 0 has saved beside the shards.

    Raises:
        ValueError: it is missing or damaged, or a shard has a wrong size.
        OSError: it cannot be read, or a shard is missing.
    """
    file = next(newest(path), None)
    if file is None or file.version != version:
        raise ValueError("its checkpoint file is missing or not whole")
    content: Tree = load(file.path)[1]
    check_sizes(path, [ShardFile(*file) for file in content["files"]])
    return content


def _whole_for_all(action: Callable[[], None], path: Path, group: Any) -> bool:
    """Whether an action finds a checkpoint whole on all ranks; raises if a rank cannot read it."""
    problem: Exception | None = None
    found = WHOLE
    try:
        action()
    except (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        logger.warning("checkpoint %s is skipped: %s", path, error)
        found = DAMAGED
    except (OSError, MemoryError) as error:
        problem, found = error, UNREADABLE
    worst = torch.tensor([found])
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=group)
    if int(worst) == UNREADABLE:
        raise problem or OSError(f"a rank cannot read the checkpoint {path}; training must not go on from an older one")
    return int(worst) == WHOLE


def _nothing() -> None:
    """Does nothing, while another rank reads."""


def _by_name(shards: dict[Keys, DTensor]) -> dict[str, Any]:
    return {name_of(keys): tensor for keys, tensor in shards.items()}


def plain_error(error: CheckpointException) -> OSError | RuntimeError:
    """Returns the cause without torch's wrapping: an error of the disk is not a failure of the training."""
    rank, (cause, _) = min(error.failures.items())
    if isinstance(cause, OSError):
        return OSError(cause.errno or errno.EIO, f"{cause.strerror or cause}, on rank {rank}")
    return RuntimeError(f"rank {rank}: {type(cause).__name__}: {cause}")
