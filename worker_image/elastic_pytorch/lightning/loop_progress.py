"""The counters of Lightning's loops."""

from typing import Any

import torch

from elastic_pytorch.lightning.framework import Trainer


class LoopProgress:
    """The counters of a Trainer's loops for a State. The sampler keeps the place in the data."""

    rank_0_counts = True

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: tracker.completed for name, tracker in self._totals().items()},
            "logged_steps": self._trainer.fit_loop.epoch_loop._batches_that_stepped,
            "should_stop": bool(self._trainer.should_stop),
            "metrics": {
                name: float(value) for name, value in self._trainer.callback_metrics.items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, tracker in self._totals().items():
            set_count(tracker, state[name])
        self._trainer.fit_loop.epoch_loop._batches_that_stepped = state["logged_steps"]
        self._trainer.should_stop = state["should_stop"]
        # Callbacks and schedules may read metrics before the next ones are logged.
        device = self._trainer.strategy.root_device
        metrics = {
            name: torch.tensor(value, device=device) for name, value in state["metrics"].items()
        }
        self._trainer.callback_metrics.update(metrics)

    def _totals(self) -> dict[str, Any]:
        loop = self._trainer.fit_loop.epoch_loop
        return {
            "optimizer_steps": loop.automatic_optimization.optim_progress.optimizer.step.total,
            "manual_optimizer_steps": loop.manual_optimization.optim_step_progress.total,
            "scheduler_steps": loop.scheduler_progress.total,
            "batches": loop.batch_progress.total,
        }

    def go_to_epoch(self, epoch: int) -> None:
        set_count(self._trainer.fit_loop.epoch_progress.total, epoch)
        set_count(self._trainer.fit_loop.epoch_progress.current, epoch)

    def go_to_batch(self, batch: int) -> None:
        """Makes `batch` the next one of the epoch. To be called when the loop requests a batch."""
        set_count(self._trainer.fit_loop.epoch_loop.batch_progress.current, batch)
        fetcher = self._trainer.fit_loop._data_fetcher
        if fetcher is not None:
            fetcher.fetched += batch


class CallbackStates:
    rank_0_counts = True

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        callbacks = self._trainer.callbacks
        return {each.state_key: state for each in callbacks if (state := each.state_dict())}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        for each in self._trainer.callbacks:
            if each.state_key in states:
                each.load_state_dict(states[each.state_key])


def set_count(tracker: Any, count: int) -> None:
    for name in ("ready", "started", "processed", "completed"):
        if hasattr(tracker, name):
            setattr(tracker, name, count)
