"""A Trainer that continues with the same steps in a group of any size."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from elastic_pytorch.group import in_process
from elastic_pytorch.state.state import State
from elastic_pytorch.state.values.per_rank import PerRank
from elastic_pytorch.state.values.registered import innermost, refuse_sharded
from elastic_pytorch.state.values.trained import Trained
from elastic_pytorch.training.loaders import sampler_of
from elastic_pytorch.training.micro_batches import Part
from elastic_pytorch.training.sampler import ElasticSampler
from elastic_pytorch.transformers.refused_arguments import RESUME, check_arguments
from elastic_pytorch.transformers.seeded_dataset import SeededDataset
from elastic_pytorch.transformers.trainer_progress import LossWindow, TrainerProgress, mean_window

if TYPE_CHECKING:
    from typing import Any as AnyTrainer
else:
    AnyTrainer = object

OLDEST = "5.4"
# Private methods of Trainer that this module overrides or calls.
HOOKS = (
    "_init_training_state",
    "_run_epoch",
    "_maybe_log_save_evaluate",
    "_get_num_items_in_batch",
    "_finalize_training",
)
IGNORED_LABEL = -100


class ElasticTrainerMixin(AnyTrainer):
    """Makes a Trainer elastic: `class MyTrainer(ElasticTrainerMixin, Seq2SeqTrainer)`.

    All other arguments are the Trainer's.

    Args:
        batch_size: samples of a step, of all workers together, which take micro-batches of
            `per_device_train_batch_size` in turns.
        folder: the folder of the State's checkpoints, best on a volume that all pods share. "":
            there are none. None: `elastic/` in `output_dir`, and in it one that is named after the
            job (TORCHELASTIC_RUN_ID).
        every: steps from one commit to the next; None: as State chooses.

    Raises:
        ValueError: a training argument does not fit a group whose size changes; or a class has its
            own `compute_loss`, and does not say in `loss_is_scaled_for_ga` what it returns.
        RuntimeError: the release of transformers is not supported; or the Trainer is created in a
            function under `in_process`.
    """

    compute_loss: Any
    lr_scheduler: Any
    # Set when a training begins.
    _elastic_state: State
    _elastic_sampler: ElasticSampler
    _elastic_window: LossWindow

    def __init__(
        self,
        *positional: Any,
        batch_size: int,
        folder: str | os.PathLike[str] | None = None,
        every: int | None = None,
        **named: Any,
    ) -> None:
        _check_release()
        if in_process.active():
            raise RuntimeError(
                "a Trainer reads rank and world size once: remove in_process, "
                "the script is started again"
            )
        super().__init__(*positional, **named)
        check_arguments(self.args)
        _check_loss(self)
        self._elastic_batch_size, self._elastic_every = batch_size, every
        self._elastic_folder = _folder(self.args.output_dir) if folder is None else folder or None
        self._elastic_trainings = 0
        self._elastic_part: Part | None = None
        # Samples of each micro-batch, while a step is fetched.
        self._elastic_counted: list[int] | None = None
        self._elastic_losses: list[torch.Tensor] = []  # of the step, weighted
        self._elastic_weights = 0.0
        self._elastic_scheduler: Any = None
        self._elastic_epoch_ends = False
        self._elastic_unweighted_loss = self.compute_loss  # of whatever class defines it
        self.compute_loss = self._elastic_weighted_loss
        # First, so that the other callbacks see the epoch that it corrects.
        self.callback_handler.callbacks.insert(0, _StepCallback(self))

    # --- the data ---

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Returns a loader that Accelerate does not prepare: it would deal the batches out again.

        Raises:
            TypeError: the dataset has no length.
        """
        stock = super().get_train_dataloader()
        arguments = self.args
        seed = arguments.seed if arguments.data_seed is None else arguments.data_seed
        sampler = ElasticSampler(
            stock.dataset,
            self._elastic_batch_size,
            micro_batch_size=self._train_batch_size,
            shuffle=getattr(arguments, "train_sampling_strategy", "random") != "sequential",
            seed=seed,
            drop_last=arguments.dataloader_drop_last,
        )
        return DataLoader(
            SeededDataset(stock.dataset, seed),
            batch_sampler=sampler,
            collate_fn=stock.collate_fn,
            num_workers=stock.num_workers,
            pin_memory=stock.pin_memory,
            persistent_workers=stock.persistent_workers,
            prefetch_factor=stock.prefetch_factor,
            multiprocessing_context=stock.multiprocessing_context,
            worker_init_fn=stock.worker_init_fn,
        )

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        self._elastic_sampler = sampler_of(dataloader)
        args.gradient_accumulation_steps = self._elastic_sampler.micro_batches_per_step
        return super().set_initial_training_values(args, dataloader)

    # --- begin and end ---

    def train(
        self, resume_from_checkpoint: str | bool | None = None, trial: Any = None, **named: Any
    ) -> Any:
        """Trains from where the group before has stopped, or from the beginning.

        Raises:
            ValueError: `resume_from_checkpoint` is given, or a trial.
        """
        if resume_from_checkpoint:
            raise ValueError(RESUME)
        if trial is not None:
            raise ValueError(
                "ElasticTrainer does not search hyperparameters: start a job for each trial"
            )
        output = super().train(trial=trial, **named)
        self._elastic_state.flush()
        return output

    def _init_training_state(
        self,
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        resume_from_checkpoint: None,
        trial: Any,
    ) -> tuple[int, int]:
        """Restores, before DistributedDataParallel wraps the model, and returns the first epoch."""
        super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, resume_from_checkpoint, trial
        )
        self.control.should_training_stop = False
        state, progress = self._elastic_register(max_steps)
        step = state.restore()
        self.state.global_step = step
        if progress.stopped or step >= max_steps:
            return num_train_epochs, 0
        return self._elastic_sampler.epoch, 0

    def _elastic_register(self, max_steps: int) -> tuple[State, TrainerProgress]:
        self.create_optimizer()
        # After a first training, Accelerate wraps it.
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        if self.lr_scheduler is not None and self.lr_scheduler is self._elastic_scheduler:
            self.lr_scheduler = None
        own = self.lr_scheduler is None
        self.create_scheduler(max_steps, optimizer)
        # Otherwise the Trainer would create another one after the restore.
        self._created_lr_scheduler = False
        self._elastic_scheduler = self.lr_scheduler if own else None
        progress, self._elastic_window = TrainerProgress(self), LossWindow(self)
        refuse_sharded(
            {"model": self.model},
            "write the loop with elastic.steps and elastic.State, which take sharded models",
        )
        registered = {
            "model": Trained(self.model) if _is_adapter(self.model) else self.model,
            "optimizer": optimizer,
            "scheduler": self.lr_scheduler,
            "scaler": getattr(self.accelerator, "scaler", None),
            "sampler": self._elastic_sampler,
            "trainer": progress,
            "losses": PerRank(self._elastic_window, reshard=mean_window),
        }
        self._elastic_trainings += 1
        name = "" if self._elastic_trainings == 1 else f"training-{self._elastic_trainings}"
        self._elastic_state = State(
            self._elastic_folder,
            State.Options(name=name, every=self._elastic_every, total_steps=max_steps),
            **{name: each for name, each in registered.items() if each is not None},
        )
        return self._elastic_state, progress

    def _finalize_training(self, trial: Any, num_train_samples: float, start_time: float) -> Any:
        return super()._finalize_training(
            trial, num_train_samples, start_time - self._elastic_window.seconds_before
        )

    # --- a step ---

    def _run_epoch(self, **named: Any) -> None:
        sampler = self._elastic_sampler
        if sampler.epoch != named["epoch"]:
            raise RuntimeError(
                f"epoch {sampler.epoch} is not done, and the Trainer begins epoch "
                f"{named['epoch']}: ElasticTrainer ends no epoch early. "
                "Remove the callback that sets should_epoch_stop"
            )
        named |= {
            "steps_in_epoch": len(sampler),
            "num_update_steps_per_epoch": sampler.batches_left,
        }
        super()._run_epoch(**named)

    def get_batch_samples(self, *positional: Any, **named: Any) -> Any:
        self._elastic_counted = self._elastic_sampler.counted_samples
        try:
            return super().get_batch_samples(*positional, **named)
        finally:
            self._elastic_counted = None

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """Returns the tokens of the step on all ranks, without micro-batches that do not count."""
        if (counts := self._elastic_counted) is None:  # an evaluation
            return super()._get_num_items_in_batch(batch_samples, device)
        return super()._get_num_items_in_batch(
            [
                batch if count else _without_labels(batch)
                for batch, count in zip(batch_samples, counts, strict=False)
            ],
            device,
        )

    def training_step(self, *positional: Any, **named: Any) -> Any:
        with self._elastic_sampler.part() as part:
            self._elastic_part = part
            self.current_gradient_accumulation_steps = 1  # the weight takes care of it
            try:
                return super().training_step(*positional, **named)
            finally:
                self._elastic_part = None

    def _elastic_weighted_loss(self, *positional: Any, **named: Any) -> Any:
        result = self._elastic_unweighted_loss(*positional, **named)
        if (part := self._elastic_part) is None:
            return result
        weight = part.weight
        factor = (
            weight
            if self._elastic_loss_is_mean(named.get("num_items_in_batch"))
            else float(part.samples > 0)
        )
        loss, *more = result if isinstance(result, tuple) else (result,)
        loss = loss * factor
        self._elastic_losses.append(loss.detach())
        self._elastic_weights += weight
        return (loss, *more) if more else loss

    def prediction_step(self, *positional: Any, **named: Any) -> Any:
        """Evaluates a batch, whose loss is its own mean.

        Otherwise the Trainer would also divide by the tokens of the other ranks' batches.
        """
        self.args.average_tokens_across_devices = False
        try:
            return super().prediction_step(*positional, **named)
        finally:
            self.args.average_tokens_across_devices = True

    def _elastic_loss_is_mean(self, num_items_in_batch: Any) -> bool:
        """Whether the loss is its micro-batch's mean, not a part of the whole batch's mean."""
        scaled = getattr(self, "loss_is_scaled_for_ga", None)
        if scaled is None:
            scaled = num_items_in_batch is not None and (
                self.model_accepts_loss_kwargs or self.compute_loss_func is not None
            )
        return not scaled

    def _maybe_log_save_evaluate(self, *positional: Any, **named: Any) -> None:
        """Commits the step after the Trainer has logged and saved, or at the end of the epoch."""
        super()._maybe_log_save_evaluate(*positional, **named)
        if self._elastic_state.step < self.state.global_step and (
            self._elastic_epoch_ends or self._elastic_sampler.batches_left > 1
        ):
            if not self._elastic_losses:
                raise RuntimeError(
                    "training_step of a subclass does not call super().training_step: "
                    "its loss has no weight"
                )
            loss = (
                torch.stack(self._elastic_losses).sum() / self._elastic_weights
                if self._elastic_weights
                else None
            )
            self._elastic_losses, self._elastic_weights = [], 0.0
            self._elastic_state.commit(loss=loss)


class ElasticTrainer(ElasticTrainerMixin, Trainer):
    """The Trainer of transformers with `ElasticTrainerMixin`, whose arguments it also takes."""


class _StepCallback(TrainerCallback):
    """Corrects losses and epoch, as the Trainer counts from the start of this process."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._trainer._elastic_window.begin()

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._trainer._elastic_epoch_ends = False

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        sampler = self._trainer._elastic_sampler
        done = sampler.batches_per_epoch - sampler.batches_left + 1
        state.epoch = sampler.epoch + done / sampler.batches_per_epoch

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self._trainer._elastic_epoch_ends = True


def _check_release() -> None:
    missing = [name for name in HOOKS if not hasattr(Trainer, name)]
    if missing:
        raise RuntimeError(
            f"transformers {transformers.__version__} is not supported: "
            f"its Trainer has no {', '.join(missing)}. Use {OLDEST} or newer, "
            "up to the newest that docs/use/transformers.md names"
        )


def _is_adapter(model: Any) -> bool:
    """Whether a model is one of PEFT's, whose frozen weights the script loads."""
    frozen = any(not parameter.requires_grad for parameter in model.parameters())
    return frozen and bool(getattr(innermost(model), "peft_config", None))


def _check_loss(trainer: Any) -> None:
    own = type(trainer).compute_loss is not Trainer.compute_loss
    counts = trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None
    if own and counts and getattr(trainer, "loss_is_scaled_for_ga", None) is None:
        raise ValueError(
            f"{type(trainer).__name__} has its own compute_loss: set loss_is_scaled_for_ga = False "
            "in the class if that returns the mean of a micro-batch, "
            "or True if it divides by num_items_in_batch, as super().compute_loss does"
        )


def _folder(output_dir: str) -> Path:
    """Returns the checkpoints' folder: a job that is created again has another one."""
    return Path(output_dir) / "elastic" / os.environ.get("TORCHELASTIC_RUN_ID", "none")


def _without_labels(batch: dict[str, Any]) -> dict[str, Any]:
    return batch | {
        name: torch.full_like(batch[name], IGNORED_LABEL)
        for name in ("labels", "shift_labels")
        if name in batch and isinstance(batch[name], torch.Tensor)
    }
