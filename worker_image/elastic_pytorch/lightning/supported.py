"""Which settings of Lightning's Trainer an elastic training refuses."""

from typing import Any

from elastic_pytorch.group import in_process
from elastic_pytorch.lightning.framework import (
    DDPStrategy,
    GradientAccumulationScheduler,
    LightningModule,
    SingleDeviceStrategy,
)


def refuse_unsupported(trainer: Any) -> None:
    if in_process.active():
        raise RuntimeError(
            "Lightning sets up its group once a process: leave out the decorator "
            "elastic_pytorch.in_process"
        )
    if not isinstance(trainer.strategy, (DDPStrategy, SingleDeviceStrategy)):
        raise RuntimeError(
            f"{type(trainer.strategy).__name__} keeps a part of the model on each rank, "
            "or is not known to elastic_pytorch.lightning: "
            'use Trainer(strategy="ddp")'
        )
    if trainer.fast_dev_run or trainer.overfit_batches or trainer.limit_train_batches != 1.0:
        raise RuntimeError(
            "fast_dev_run, overfit_batches and limit_train_batches leave out samples of the epoch, "
            "which an elastic training counts: leave them out, and give the DataLoader a "
            "torch.utils.data.Subset"
        )
    if trainer.reload_dataloaders_every_n_epochs:
        raise RuntimeError(
            "reload_dataloaders_every_n_epochs makes a loader that knows nothing of the place in "
            "the data: leave it out of the Trainer"
        )


def refuse_second_start(trainer: Any) -> None:
    if trainer.ckpt_path is not None:
        raise RuntimeError(
            "leave ckpt_path out of Trainer.fit: where training goes on is in the folder of "
            "elastic_pytorch.lightning.options. To begin from the weights of a checkpoint, "
            "make the model with load_from_checkpoint"
        )


def refuse_accumulation(trainer: Any, module: LightningModule) -> None:
    if trainer.accumulate_grad_batches != 1 or any(
        isinstance(each, GradientAccumulationScheduler) for each in trainer.callbacks
    ):
        raise RuntimeError(
            "micro_batch_size takes the place of accumulate_grad_batches: "
            "leave the latter out of the Trainer"
        )
    if not module.automatic_optimization:
        raise RuntimeError(
            "leave out micro_batch_size: with manual optimization, "
            "training_step decides which batches make a step"
        )
