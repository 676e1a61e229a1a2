"""What torchtitan's Trainer needs so that its group may change: data loader and checkpoint manager.

    config.dataloader = ElasticDataLoader.Config(samples=my_samples)
    config.checkpoint = ElasticCheckpointManager.Config(enable=True, interval=100)

torchtitan's own data loaders continue only with the same data-parallel degree, while its
checkpoints fit any degree. Copy this file and framework_state.py beside your script. They fit the
release of torchtitan that the Dockerfile names, and the release of elastic-pytorch that they come
with.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import elastic_pytorch as elastic
import torch
import tyro
from elastic_pytorch.training.epoch_order import EpochOrder
from framework_state import FrameworkState
from torch.utils.data import DataLoader
from torchtitan.components.checkpointer import MODEL, OPTIMIZER, TRAIN_STATE, CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader

Sample = tuple[dict[str, torch.Tensor], torch.Tensor]


class ElasticDataLoader(BaseDataLoader):
    """The batches of a training whose degree may change: each sample comes once in an epoch.

    The order depends only on seed and epoch. The position is the number of samples that the whole
    group has taken, so any degree goes on from it. With `training.global_batch_size`, a step takes
    the same samples whatever the degree. A batch may reach into the next epoch.

    Args:
        config: see Config.
        dp_world_size: the data-parallel degree.
        dp_rank: of this rank.
        tokenizer: of the Trainer; passed on to `samples`.
        seq_len: the length of a sample, in tokens; passed on to `samples`.
        local_batch_size: samples of a micro-batch of this rank.
        other: what else the Trainer passes to a loader; not used.

    Raises:
        ValueError: the dataset is empty.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Where the samples come from.

        Attributes:
            samples: called with the tokenizer and the sequence length; returns a dataset with a
                length. Each of its samples is `({"input": tokens, …}, labels)`, tensors of the
                sequence length.
            shuffle: whether each epoch has its own order.
            seed: of the orders.
            num_workers: processes that load samples; 0: none.
        """

        samples: Annotated[Callable[[Any, int], Any] | None, tyro.conf.Suppress] = None
        shuffle: bool = True
        seed: int = 0
        num_workers: int = 0

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        tokenizer: Any,
        seq_len: int,
        local_batch_size: int,
        **other: Any,
    ) -> None:
        del other
        if config.samples is None:
            raise ValueError(
                "ElasticDataLoader.Config needs samples: "
                "a function of tokenizer and sequence length"
            )
        self._samples = config.samples(tokenizer, seq_len)
        self._length = len(self._samples)
        if self._length < 1:
            raise ValueError("the dataset is empty")
        self._shuffle, self._seed, self._num_workers = (
            config.shuffle,
            config.seed,
            config.num_workers,
        )
        self._rank, self._world_size, self._local_batch_size = (
            dp_rank,
            dp_world_size,
            local_batch_size,
        )
        self._taken = 0  # samples, of all ranks together
        self._order = EpochOrder(self._length, shuffle=config.shuffle, seed=config.seed)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position and what it depends on: numbers, the same on all ranks."""
        return {"samples_taken": self._taken, **self._meaning()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from a position; without one, stays where it is.

        Raises:
            ValueError: the position is in another order: of another dataset or seed.
        """
        if not state_dict:
            return
        for name, value in self._meaning().items():
            if state_dict.get(name) != value:
                raise ValueError(
                    "the saved place in the data is of another order: "
                    f"{name} was {state_dict.get(name)} and is {value} now"
                )
        self._taken = int(state_dict["samples_taken"])

    def _meaning(self) -> dict[str, Any]:
        return {"length": self._length, "seed": self._seed, "shuffle": self._shuffle}

    def __iter__(self) -> Iterator[Sample]:
        """Yields the micro-batches of this rank from the position on, without end."""
        for batch in DataLoader(
            self._samples, batch_sampler=self._batches(self._taken), num_workers=self._num_workers
        ):
            self._taken += self._world_size * self._local_batch_size
            yield batch

    def _batches(self, begin: int) -> Iterator[list[int]]:
        while True:
            mine = begin + self._rank * self._local_batch_size
            yield [self._index_of(number) for number in range(mine, mine + self._local_batch_size)]
            begin += self._world_size * self._local_batch_size

    def _index_of(self, number: int) -> int:
        """Returns the dataset's index of a sample, which the whole training numbers."""
        epoch, place = divmod(number, self._length)
        return int(self._order.of(epoch)[place])


class ElasticCheckpointManager(CheckpointManager):
    """torchtitan's checkpoints, and from one to the next the training in the memory of the pods.

    All ranks agree on the step at which the group stops in order to change, so a change on purpose
    costs no step. The loss of a worker costs the steps since the last commit to memory, and the
    loss of several pods at once those since the last checkpoint. The Trainer's `dump_folder` must
    be on a volume that all pods share. With a `load_step`, each group begins with that checkpoint.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        """That of torchtitan's CheckpointManager, and what is committed to memory.

        Attributes:
            memory: whether anything is. It takes four times the rank's part of the model and the
                optimizers.
            commit_every: steps from one commit to the next; None: as often as possible within a
                hundredth of the steps' time.
        """

        memory: bool = True
        commit_every: int | None = None

    def __init__(self, config: Config, **components: Any) -> None:
        self._elastic_config = config
        self._elastic_state: FrameworkState | None = None
        self._elastic_folder = Folder(self)
        super().__init__(config, **components)

    def _load(self, step: int = -1) -> bool:
        if self.load_only:  # nothing could be saved at a boundary
            return bool(super()._load(step))
        kept = {name: each for name, each in self.states.items() if name not in (MODEL, OPTIMIZER)}
        kept |= {f"{MODEL}_{number}": part for number, part in enumerate(self.states[MODEL].model)}
        kept |= {
            f"{OPTIMIZER}_{number}": each
            for number, each in enumerate(self.states[OPTIMIZER].optimizers)
        }
        self._elastic_folder.load_step = step
        self._elastic_state = FrameworkState(
            self._elastic_folder,
            FrameworkState.Options(
                every=self._elastic_config.commit_every,
                total_steps=self.states[TRAIN_STATE].config.training.steps,
                memory=self._elastic_config.memory and step == -1,
            ),
            **kept,
        )
        return self._elastic_state.restore() > 0

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        saved: bool = super()._save(curr_step, last_step)
        if saved:
            self._elastic_folder.saved = curr_step
        elastic.report(
            step=curr_step,
            total=self.states[TRAIN_STATE].config.training.steps,
            checkpoint_step=curr_step if saved and self.save_future is None else None,
        )
        if self._elastic_state is not None:
            self._elastic_state.commit()
        return saved

    def _should_save(self, curr_step: int, last_step: bool = False) -> bool:
        return self._elastic_folder.due == curr_step or bool(
            super()._should_save(curr_step, last_step)
        )


class Folder:
    """The checkpoints of a CheckpointManager, for a FrameworkState.

    Args:
        manager: of the checkpoints.

    Attributes:
        load_step: the step of the one to load; -1: the newest.
        saved: the step of the newest that this process has written, or is writing; -1: none.
        due: the step at which another one is written beside those that the manager's own rules ask
            for; -1: none.
    """

    def __init__(self, manager: CheckpointManager) -> None:
        self._manager = manager
        self.load_step = self.saved = self.due = -1

    def newest(self) -> int:
        """Returns the step of the one to load; 0: there is none."""
        return max(0, self._manager._find_load_step() if self.load_step == -1 else self.load_step)

    def load(self, step: int) -> int:
        """Loads it, or with 0 what the training begins with; returns the training's step."""
        CheckpointManager._load(self._manager, step or self.load_step)
        return int(self._manager.states[TRAIN_STATE].step)

    def save(self, step: int) -> None:
        """Writes one of a step, unless that has one."""
        if self.saved != step:
            self.due = step
            CheckpointManager._save(self._manager, step)
        self.settle()

    def settle(self) -> None:
        """Waits for one that is being written."""
        self._manager.maybe_wait_for_saving()
