"""The callback that keeps a Lightning training in a State."""

import math
import os
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from torch import Tensor

from elastic_pytorch.lightning.checkpoint_hooks import CheckpointHooks
from elastic_pytorch.lightning.elastic_loader import (
    ElasticLoader,
    SamplerState,
    with_elastic_sampler,
)
from elastic_pytorch.lightning.framework import (
    Callback,
    LightningDataModule,
    LightningModule,
    Trainer,
)
from elastic_pytorch.lightning.loop_progress import CallbackStates, LoopProgress
from elastic_pytorch.lightning.supported import (
    refuse_accumulation,
    refuse_second_start,
    refuse_unsupported,
)
from elastic_pytorch.pod import agent_link
from elastic_pytorch.state.state import State
from elastic_pytorch.state.values.registered import refuse_sharded
from elastic_pytorch.training.micro_batches import Part
from elastic_pytorch.training.sampler import ElasticSampler
from elastic_pytorch.training.training_loop import mean_loss


class ElasticCallback(Callback):
    """Restores the training in each group, commits each step, and stops where the group changes.

    A step is committed when the next one begins, so validation and hooks after the optimizer's step
    belong to it. The arguments are those of `options`, without `callbacks` and `plugins`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        batch_size: int | None = None,
        micro_batch_size: int | None = None,
        name: str = "",
        every: int | None = None,
        keep: int = 2,
        keep_every_steps: int | None = None,
        flush_seconds: float = 5.0,
    ) -> None:
        self._folder = folder
        self._batch_size, self._micro_batch_size = batch_size, micro_batch_size
        self._options = State.Options(
            name=name,
            every=every,
            keep=keep,
            keep_every_steps=keep_every_steps,
            flush_seconds=flush_seconds,
        )
        self._handler: Any = signal.SIG_DFL  # of SIGTERM, before Lightning sets its own
        self._state: State | None = None
        self._sampler: ElasticSampler | None = None
        self._in_part = ExitStack()
        self._part: Part | None = None  # the current batch
        self._factor = 1.0  # by which Lightning divides the loss, and must not
        self._steps = 0  # of the optimizers, at the end of the last batch
        self._step_is_done = False  # but not committed yet
        self._losses: list[tuple[int, Tensor]] = []  # of the step: samples, and the mean over them

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            refuse_unsupported(trainer)
            self._handler = signal.getsignal(signal.SIGTERM)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores: optimizers exist by now, and Lightning has not read the loader's length."""
        refuse_second_start(trainer)
        source = trainer.fit_loop._data_source
        loader, sampler = with_elastic_sampler(
            source.dataloader(),
            batch_size=self._batch_size,
            micro_batch_size=self._micro_batch_size,
        )
        progress = LoopProgress(trainer)
        source.instance = ElasticLoader(loader, sampler, progress.go_to_batch)
        self._sampler = sampler
        if sampler.has_micro_batches:
            refuse_accumulation(trainer, pl_module)
            trainer.accumulate_grad_batches = self._factor = sampler.micro_batches_per_step
        batches_per_step = 1 if sampler.has_micro_batches else trainer.accumulate_grad_batches
        epochs = trainer.fit_loop.max_epochs
        data = getattr(trainer, "datamodule", None)
        keeps = data is not None and type(data).state_dict is not LightningDataModule.state_dict
        others: dict[str, Any] = {"data": data} if keeps else {}
        if (hooks := CheckpointHooks(trainer)).any:
            others["hooks"] = hooks
        refuse_sharded(
            {"model": pl_module},
            "write the loop with elastic.steps and elastic.State, which take sharded models",
        )
        self._state = State(
            self._folder,
            replace(
                self._options,
                total_steps=total_steps(
                    max_steps=trainer.max_steps,
                    epochs=epochs,
                    steps_per_epoch=math.ceil(sampler.batches_per_epoch / batches_per_step),
                    automatic=pl_module.automatic_optimization,
                ),
            ),
            model=pl_module,
            **numbered("optimizer", trainer.optimizers),
            **numbered("scheduler", [config.scheduler for config in trainer.lr_scheduler_configs]),
            precision=trainer.precision_plugin,
            loops=progress,
            callbacks=CallbackStates(trainer),
            sampler=SamplerState(sampler, epochs=-1 if epochs is None else epochs),
            **others,
        )
        if self._state.restore() > 0:
            trainer.num_sanity_val_steps = 0
        progress.go_to_epoch(sampler.epoch)
        self._steps, self._step_is_done, self._losses = trainer.global_step, False, []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores the script's handler of SIGTERM: in a pod, the ranks agree where to stop.

        Lightning's handler waits for rank 0 within a step, which a lost peer never reaches.
        """
        if (
            agent_link.current() is not None
            and threading.current_thread() is threading.main_thread()
        ):
            signal.signal(signal.SIGTERM, self._handler)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._sampler is not None and self._sampler.epoch != trainer.current_epoch:
            raise RuntimeError(
                f"epoch {self._sampler.epoch} has ended before all its samples were used: "
                "on_train_batch_start must not return -1"
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._commit()
        if self._sampler is not None:
            self._part = self._in_part.enter_context(self._sampler.part())

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        if self._part is None:
            return
        weight = self._part.weight * self._factor
        if weight != 1.0 and loss.requires_grad:
            loss.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        part, sampler = self._part, self._sampler
        if part is None or sampler is None:
            return
        if not part.weight_used:
            raise RuntimeError(
                "training_step went backward without Lightning, or not at all, so the loss was not "
                "weighted by this rank's share of the batch: call self.manual_backward(loss) "
                "instead of loss.backward()"
            )
        self._part = None
        self._in_part.close()
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if part.samples and isinstance(loss, Tensor):
            divided_by = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
            self._losses.append((part.samples, loss.detach() * divided_by))
        if part.last:
            sampler.advance()
        self._step_is_done = self._step_is_done or trainer.global_step != self._steps
        self._steps = trainer.global_step

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._commit()
        if self._state is not None:
            self._state.flush()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Closes the State, since another fit may follow in this process."""
        if self._state is not None and stage == "fit":
            self._state.close()
            if self._factor != 1.0:
                trainer.accumulate_grad_batches, self._factor = 1, 1.0
            self._state = self._sampler = self._part = None

    def _commit(self) -> None:
        if self._state is None or not self._step_is_done:
            return
        losses, self._losses, self._step_is_done = self._losses, [], False
        self._state.commit(loss=mean_loss(losses))


def numbered(name: str, objects: list[Any]) -> dict[str, Any]:
    return {
        name if number == 0 else f"{name}_{number}": each for number, each in enumerate(objects)
    }


def total_steps(
    *, max_steps: int, epochs: int | None, steps_per_epoch: int, automatic: bool
) -> int | None:
    """Returns None without limits (-1), or if training_step decides when the optimizer steps."""
    if not automatic:
        return None
    limits = [max_steps] if max_steps >= 0 else []
    limits += [epochs * steps_per_epoch] if epochs is not None and epochs >= 0 else []
    return min(limits, default=None)
