"""Reads checkpoints for evaluation or export, without a group or an agent."""

import contextlib
import inspect
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as read_shards

from elastic_pytorch.object_url import Location, location_of
from elastic_pytorch.state.contents import LAYOUT
from elastic_pytorch.state.sharded.shard_files import shard_reader
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_file
from elastic_pytorch.storage.checkpoint_folder import Checkpoint, by_name
from elastic_pytorch.storage.checkpoint_format import SHARDED, version_of
from elastic_pytorch.storage.checkpoint_format import name_of as name_of_file
from elastic_pytorch.storage.places import place_at
from elastic_pytorch.storage.sharded_folder import check_checksums, check_sizes, files_of

Tree = dict[Any, Any]


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a checkpoint of a `State` in any process: it needs no group and no agent.

    Args:
        path: a folder of checkpoints, of which the newest whole one is read; those that are damaged
            are skipped, with a line in the log. Or one checkpoint: a file, or the folder of a
            sharded one. Or the URL of a folder or a file in object storage.

    Returns:
        What was registered, by its names: the `state_dict` of each object, and the plain values;
        and `step`, the number of steps done. Tensors are whole, and on the CPU.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: none is whole, and the message says what is wrong with which file. Or the folder
            has sub-folders of several trainings.
        RuntimeError: it is of a pipeline, or of an engine that has a format of its own.
        OSError: it cannot be read.
        MemoryError: there is no room for it.
    """
    place = location_of(path)
    if place.is_file() if isinstance(place, Path) else version_of(place.name):
        try:
            return _registered(place, checkpoint_file.load(place)[1])
        except ValueError as error:
            raise ValueError(f"the checkpoint {place} cannot be read: {error}") from error
    problems: dict[Location, Exception] = {}
    found = checkpoint_file.first_whole(lambda: _checkpoints(place), _read, problems)
    if found is not None:
        return found
    if problems:
        damage = "; ".join(
            f"{str(file).removeprefix(f'{place}/')}: {error}" for file, error in problems.items()
        )
        raise ValueError(f"no checkpoint in {place} is whole: {damage}")
    if trainings := _trainings(place):
        raise ValueError(
            f"{place} has no checkpoint itself, but the trainings {', '.join(trainings)}: "
            "give the path of one of them"
        )
    raise FileNotFoundError(
        f"there is no {place}"
        if checkpoint_file.is_gone(place)
        else f"there is no checkpoint in {place}"
    )


def _checkpoints(folder: Location) -> list[Checkpoint]:
    sharded = (
        Checkpoint(version, path / name_of_file(version))
        for version, path in by_name(folder, SHARDED)
    )
    found = [*by_name(folder), *sharded]
    return sorted(found, key=lambda each: (each.version, str(each.path)), reverse=True)


def _trainings(path: Location) -> list[str]:
    found = []
    for name in place_at(path).folders():
        with contextlib.suppress(OSError):
            found += [name] if _checkpoints(path / name) else []
    return sorted(found)


def _read(version: StateVersion, file: Location) -> dict[str, Any]:
    try:
        tree = checkpoint_file.load_version(file, version)
    except FileNotFoundError as error:
        if file.parent.name.endswith(SHARDED):
            raise ValueError("its checkpoint file is missing") from error
        raise
    return _registered(file, tree)


def _registered(file: Location, tree: Tree) -> dict[str, Any]:
    if "shards" in tree and "rest" in tree:
        tree = _put_together(file.parent, tree)
    if tree.get("layout") != LAYOUT:
        raise ValueError(f"it is of another release's layout: {tree.get('layout')}")
    return {**tree["values"], **tree["objects"], "step": tree["step"]}


def _put_together(folder: Location, content: Tree) -> Tree:
    # Imported here, as they need a newer torch than 2.4, which reads unsharded checkpoints.
    from elastic_pytorch.state.sharded.sharded_checkpoint import ENGINE  # noqa: PLC0415
    from elastic_pytorch.state.sharded.trees import insert, name_of  # noqa: PLC0415

    files = files_of(content)
    if len(content.get("stages", ())) > 1:
        raise RuntimeError(
            f"{folder} is of a pipeline of {len(content['stages'])} stages, "
            "which elastic.load does not put together: restore it with ShardedState in a group"
        )
    if any(Path(file.name).parts[0] == ENGINE for file in files):
        raise RuntimeError(
            f"{folder} has what DeepSpeed writes by itself, in its folder {ENGINE}: "
            "read that with DeepSpeed's own tools"
        )
    check_sizes(folder, files)
    check_checksums(folder, files)
    shards = {name_of(keys): keys for keys in content["shards"]}
    tensors = _whole_tensors(folder, list(shards)) if shards else {}
    for name, tensor in tensors.items():
        insert(content["rest"], shards[name], tensor)
    whole: Tree = content["rest"]
    return whole


def _whole_tensors(folder: Location, names: list[str]) -> dict[str, torch.Tensor]:
    from elastic_pytorch.state.sharded.sharded_checkpoint import plain_error  # noqa: PLC0415

    reader = shard_reader(folder)
    described = reader.read_metadata().state_dict_metadata
    tensors: dict[str, Any] = {}
    for name in names:
        its = described.get(name)
        if not isinstance(its, TensorStorageMetadata):
            raise ValueError(f"torch's metadata do not have the tensor {name}")
        tensors[name] = torch.empty(its.size, dtype=its.properties.dtype)
    alone = reads_alone(read_shards, grouped=dist.is_available() and dist.is_initialized())
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "torch.distributed is disabled, unavailable or uninitialized"
            )
            read_shards(tensors, storage_reader=reader, **alone)
    except CheckpointException as error:
        raise plain_error(error) from error
    return tensors


def reads_alone(read: Callable[..., None], *, grouped: bool) -> dict[str, Any]:
    """Returns the arguments with which torch's `read` needs no other process."""
    if "no_dist" in inspect.signature(read).parameters:
        return {"no_dist": True}
    if grouped:
        raise RuntimeError(
            f"torch {torch.__version__} reads sharded checkpoints with the whole group: "
            "load it in a process without one"
        )
    return {}
