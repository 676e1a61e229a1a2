"""The state of a training with DeepSpeed's ZeRO: all ranks save, a group of any size loads.

DeepSpeed's checkpoints are for one size of the group. Rank 0 of a new group has DeepSpeed convert
the newest one to a universal checkpoint, which is for any size:
https://www.deepspeed.ai/tutorials/universal-checkpointing/.
"""

import contextlib
import os
import shutil
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from deepspeed.checkpoint.ds_to_universal import main as convert

from elastic_pytorch.group import in_process
from elastic_pytorch.group.rank_group import cpu_group
from elastic_pytorch.log import logger
from elastic_pytorch.object_url import ObjectUrl, location_of
from elastic_pytorch.state.options import Options
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from elastic_pytorch.state.step_boundary import any_rank
from elastic_pytorch.training.sampler import ElasticSampler

# Tags of DeepSpeed's checkpoints, and so names of sub-folders.
NATIVE, UNIVERSAL = "zero", "universal"


class DeepSpeedState(ShardedState):
    """A `ShardedState` for an engine of DeepSpeed, with checkpoints only.

    Register all that the training needs but model, optimizer and schedule, which the engine keeps.

    Args:
        folder: on a volume that all pods share.
        engine: what `deepspeed.initialize` returned first, with `"checkpoint": {"load_universal":
            true}` in its configuration.
        options: see `State.Options`. `every` must be given: the steps of the optimizer from one
            checkpoint to the next, for which training waits. `memory` has no effect, and `initial`
            is refused.

    Raises:
        ValueError: the engine cannot be resized, or a sampler deals out the samples to other ranks
            than its data-parallel ones.
        RuntimeError: a function that `in_process` decorates makes it.
    """

    _LOAD_INSTEAD = "before deepspeed.initialize, which copies them"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        engine: Any,
        options: Options,
        /,
        **registered: Any,
    ) -> None:
        if options.every is None:
            raise ValueError(
                "DeepSpeedState has only checkpoints: give the steps between two of them, "
                "as State.Options(every=100)"
            )
        if in_process.active():
            raise RuntimeError(
                "DeepSpeed keeps its process groups for the whole process: leave out in_process, "
                "and a new group starts it again"
            )
        check_engine(engine)
        for key, each in registered.items():
            if isinstance(each, ElasticSampler):
                check_place(key, each.data_parallel.place(), place_of(engine))
        if isinstance(location_of(folder), ObjectUrl):
            raise ValueError(
                f"{os.fspath(folder)!r}: DeepSpeed writes its checkpoints to a folder. "
                "Give one on a volume that all pods share, and copy the checkpoints from there"
            )
        super().__init__(folder, replace(options, memory=False), **registered)
        self._engine = ZeroEngine(engine)


def check_engine(engine: Any) -> None:
    if engine.pipeline_parallelism:
        raise ValueError(
            "DeepSpeedState is not for a PipelineModule: its first and last stages each read the "
            "samples, and train_batch weights all micro-batches alike. "
            "Use ZeRO without a pipeline; or stages with fully_shard, a loop of your own, "
            "and elastic.State"
        )
    if not 1 <= engine.zero_optimization_stage() <= 3:
        raise ValueError(
            'DeepSpeedState is for ZeRO: set {"zero_optimization": {"stage": 1}}, 2 or 3, '
            "in DeepSpeed's configuration"
        )
    if not engine.load_universal_checkpoint():
        raise ValueError(
            'groups of another size load universal checkpoints: set {"checkpoint": '
            '{"load_universal": true}} in DeepSpeed\'s configuration'
        )


def place_of(engine: Any) -> tuple[int, int] | None:
    """Returns this rank's place among the engine's data-parallel ranks, and their number."""
    group = engine.data_parallel_group
    return None if group is None else (dist.get_rank(group), dist.get_world_size(group))


def check_place(name: str, samples: tuple[int, int], data_parallel: tuple[int, int] | None) -> None:
    if samples != data_parallel:
        engines = "unknown" if data_parallel is None else "{} of {}".format(*data_parallel)
        raise ValueError(
            f"to the {name} this rank is data-parallel rank {samples[0]} of {samples[1]}, "
            f"and to DeepSpeed {engines}. Ranks that are parallel by tensors or sequences compute "
            "one sample together: give the sampler the data-parallel mesh, as in "
            'ElasticSampler(…, mesh=mesh["replicate"])'
        )


class ZeroEngine:
    """DeepSpeed's engine as a part of a sharded checkpoint."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def save(self, folder: Path) -> None:
        """Writes a checkpoint of DeepSpeed's own. Collective.

        Raises:
            RuntimeError: this rank could not write; the others wait for it until it ends.
        """
        try:
            self._engine.save_checkpoint(str(folder), tag=NATIVE, save_latest=False)
        except OSError as error:
            raise RuntimeError(f"DeepSpeed could not write to {folder}: {error}") from error

    def load(self, folder: Path) -> None:
        """Loads a checkpoint of a group of any size, which rank 0 converts first. Collective.

        Raises:
            OSError: there is no room for the converted checkpoint, which is as large as the other.
        """
        group = cpu_group()
        problem: Exception | None = None
        if dist.get_rank() == 0:
            try:
                convert_once(folder)
            except Exception as error:
                problem = error
        if any_rank(problem is not None, group):
            raise problem or RuntimeError(
                "rank 0 cannot convert the checkpoint of DeepSpeed; its log says why"
            )
        path, _ = self._engine.load_checkpoint(str(folder), tag=UNIVERSAL)
        if path is None:
            raise RuntimeError(
                f"DeepSpeed has not loaded the checkpoint in {folder / UNIVERSAL}; its log says why"
            )


def convert_once(folder: Path) -> None:
    if (folder / UNIVERSAL).exists():
        return
    partial = folder / f".{UNIVERSAL}-{os.urandom(8).hex()}"
    try:
        logger.info("converting the checkpoint in %s for a group of any size", folder)
        options = Namespace(
            input_folder=str(folder / NATIVE), output_folder=str(partial), keep_temp_folder=False
        )
        options.num_extract_workers = options.num_merge_workers = 1
        options.strict = options.inject_missing_state = True
        with contextlib.redirect_stdout(sys.stderr):
            convert(options)
        partial.rename(folder / UNIVERSAL)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
