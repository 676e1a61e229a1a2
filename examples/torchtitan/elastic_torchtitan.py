"""What torchtitan's Trainer needs so that its group may change: a data loader and a checkpoint manager for its configuration.

    config.dataloader = ElasticDataLoader.Config(samples=my_samples)
    config.checkpoint = ElasticCheckpointManager.Config(enable=True, interval=100)

torchtitan's own data loaders continue only with the same data-parallel degree, while its checkpoints fit any degree. Copy this file beside
your script. It fits the release of torchtitan that the Dockerfile names, and the release of elastic-pytorch that it comes with.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import tyro
from elastic_pytorch.pod import agent_link
from elastic_pytorch.progress.report import report
from elastic_pytorch.state.commit_interval import CommitInterval
from elastic_pytorch.state.restore import cpu_group
from elastic_pytorch.state.step_boundary import StepBoundary, start_maximum
from elastic_pytorch.training.epoch_order import EpochOrder
from torch.utils.data import DataLoader
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader

Sample = tuple[dict[str, torch.Tensor], torch.Tensor]


class ElasticDataLoader(BaseDataLoader):
    """The batches of a training whose data-parallel degree may change: each sample comes exactly once in an epoch.

    The order depends only on seed and epoch. The position is the number of samples that the whole group has taken, so any degree goes on
    from it. With `training.global_batch_size`, a step takes the same samples whatever the degree. A batch may reach into the next epoch.

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
            samples: called with the tokenizer and the sequence length; returns a dataset with a length. Each of its samples is
                `({"input": tokens, …}, labels)`, tensors of the sequence length.
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
            raise ValueError("ElasticDataLoader.Config needs samples: a function of tokenizer and sequence length")
        self._samples = config.samples(tokenizer, seq_len)
        self._length = len(self._samples)
        if self._length < 1:
            raise ValueError("the dataset is empty")
        self._shuffle, self._seed, self._num_workers = config.shuffle, config.seed, config.num_workers
        self._rank, self._world_size, self._local_batch_size = dp_rank, dp_world_size, local_batch_size
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
                    f"the saved place in the data is of another order: {name} was {state_dict.get(name)} and is {value} now"
                )
        self._taken = int(state_dict["samples_taken"])

    def _meaning(self) -> dict[str, Any]:
        return {"length": self._length, "seed": self._seed, "shuffle": self._shuffle}

    def __iter__(self) -> Iterator[Sample]:
        """Yields the micro-batches of this rank from the position on, without end."""
        for batch in DataLoader(self._samples, batch_sampler=self._batches(self._taken), num_workers=self._num_workers):
            self._taken += self._world_size * self._local_batch_size
            yield batch

    def _batches(self, begin: int) -> Iterator[list[int]]:
        while True:
            mine = begin + self._rank * self._local_batch_size
            yield [self._index_of(number) for number in range(mine, mine + self._local_batch_size)]
            begin += self._world_size * self._local_batch_size

    def _index_of(self, number: int) -> int:
        """Returns the index in the dataset of a sample, which is numbered from the beginning of the training."""
        epoch, place = divmod(number, self._length)
        return int(self._order.of(epoch)[place])


class ElasticCheckpointManager(CheckpointManager):
    """torchtitan's checkpoints, and one more at the step at which the group stops in order to change.

    All ranks agree on that step. So a change on purpose costs no step, and the loss of a worker costs the steps since the last checkpoint.
    The Trainer's `dump_folder` must be on a volume that all pods share.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        """That of torchtitan's CheckpointManager."""

    def __init__(self, config: Config, **components: Any) -> None:
        self._elastic_boundary: StepBoundary | None = None
        self._elastic_agent_link: agent_link.AgentLink | None = None
        self._elastic_stopping = False
        super().__init__(config, **components)

    def _load(self, step: int = -1) -> bool:
        loaded: bool = super()._load(step)
        if self.load_only:  # nothing could be saved at a boundary
            return loaded
        group = cpu_group()
        self._elastic_boundary = StepBoundary(lambda numbers: start_maximum(numbers, group), CommitInterval(1))
        self._elastic_agent_link = agent_link.current()
        if self._elastic_agent_link is not None:
            self._elastic_agent_link.cooperate(in_process=False)
        return loaded

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        agent = self._elastic_agent_link
        stop = self._elastic_boundary is not None and self._elastic_boundary.reached(
            lambda: agent is not None and agent.wanted()
        )
        self._elastic_stopping = stop
        saved: bool = super()._save(curr_step, last_step)
        if stop or last_step:
            self.maybe_wait_for_saving()
        report(
            step=curr_step,
            total=self.states["train_state"].config.training.steps,
            checkpoint_step=curr_step if saved and self.save_future is None else None,
        )
        if stop and agent is not None and not last_step:
            agent.stop_process(curr_step)
        return saved

    def _should_save(self, curr_step: int, last_step: bool = False) -> bool:
        return self._elastic_stopping or bool(super()._should_save(curr_step, last_step))
