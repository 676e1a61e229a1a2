from typing import Any

import pytest

pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")

import lightning as L  # noqa: N812
import torch
from elastic_pytorch.group import in_process
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from tests.worker_image.lightning.small_training import Small, loader, trainer

pytestmark = pytest.mark.torch


class Manual(Small):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Forgets(Manual):
    """Goes backward without Lightning."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        loss.backward()
        return loss


class Skips(Small):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 2 else None


@pytest.mark.parametrize(
    ("arguments", "module", "message"),
    [
        ({"limit_train_batches": 2}, Small, "limit_train_batches leave out samples"),
        ({"overfit_batches": 2}, Small, "overfit_batches"),
        ({"fast_dev_run": True}, Small, "fast_dev_run"),
        ({"reload_dataloaders_every_n_epochs": 1}, Small, "reload_dataloaders_every_n_epochs"),
        ({"micro_batch_size": 2, "accumulate_grad_batches": 2}, Small, "takes the place of accumulate_grad_batches"),
        ({"micro_batch_size": 2, "callbacks": GradientAccumulationScheduler({1: 2})}, Small, "takes the place of"),
        ({"micro_batch_size": 2}, Manual, "leave out micro_batch_size: with manual optimization"),
        ({}, Forgets, "call self.manual_backward"),
        ({}, Skips, "on_train_batch_start must not return -1"),
    ],
)
def test_what_does_not_go_with_it_is_named(arguments: dict[str, Any], module: type[Small], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        trainer(None, **arguments).fit(module(), loader())


def test_another_strategy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(None)
    monkeypatch.setattr(made.strategy, "__class__", L.pytorch.strategies.FSDPStrategy)
    with pytest.raises(RuntimeError, match=r'FSDPStrategy .*use Trainer\(strategy="ddp"\)'):
        made.callbacks[0].setup(made, Small(), "fit")


def test_checkpoint_of_lightnings_to_go_on_from_is_refused(tmp_path: Any) -> None:
    first = trainer(None)
    first.fit(Small(), loader())
    first.save_checkpoint(tmp_path / "some.ckpt")
    with pytest.raises(RuntimeError, match=r"leave ckpt_path out of Trainer\.fit: .*load_from_checkpoint"):
        trainer(None).fit(Small(), loader(), ckpt_path=tmp_path / "some.ckpt")


def test_in_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "active", lambda: True)
    with pytest.raises(RuntimeError, match="leave out the decorator"):
        trainer(None).fit(Small(), loader())
