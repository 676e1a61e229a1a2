from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")

import lightning as L  # noqa: N812
import torch
from elastic_pytorch.lightning.checkpoint_hooks import CheckpointHooks
from lightning.pytorch import callbacks

from tests.worker_image.lightning.small_training import Small, loader, trainer

pytestmark = pytest.mark.torch


class Lost(Exception):
    """The process ends here."""


class LostAt(Small):
    """Is lost in the midst of training."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if len(self.seen) == self.batches:
            raise Lost
        return super().training_step(batch, batch_idx)


class Counts(L.Callback):
    """Counts batches, and keeps the number by its hooks alone."""

    def __init__(self) -> None:
        self.batches = 0

    def on_train_batch_end(self, *_: Any) -> None:
        self.batches += 1

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["batches"] = self.batches

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self.batches = checkpoint["batches"]


def fit(folder: Path | None, module: Small, callback: L.Callback) -> Small:
    torch.manual_seed(3)
    module.net.reset_parameters()
    made = trainer(folder, callbacks=callback)
    try:
        made.fit(module, loader())
    except Lost:
        made.callbacks[0]._state.close()  # type: ignore[attr-defined] # a process that ends does so
    return module


def averaging() -> L.Callback:
    if not hasattr(callbacks, "EMAWeightAveraging"):
        pytest.skip("this release of Lightning averages no weights")
    made: L.Callback = callbacks.EMAWeightAveraging(decay=0.9)
    return made


@pytest.mark.parametrize("new", [averaging, Counts])
def test_a_second_process_goes_on_with_what_hooks_keep(new: Callable[[], L.Callback], tmp_path: Path) -> None:
    whole, cut, rest = new(), new(), new()
    expected = fit(None, Small(), whole)
    fit(tmp_path, LostAt(5), cut)
    delivered = fit(tmp_path, Small(), rest)
    assert 0 < len(delivered.seen) < len(expected.seen)
    torch.testing.assert_close(delivered.net.weight, expected.net.weight)  # of averaged weights, if there are any
    assert getattr(rest, "batches", 8) == getattr(whole, "batches", 8) == 8


def test_the_module_s_own_state_is_not_kept_twice() -> None:
    made = trainer(None, callbacks=averaging())
    made.fit(Small(), loader())
    made.callbacks[-1].setup(made, made.lightning_module, "fit")
    kept = CheckpointHooks(made).state_dict()
    assert (kept["same"], sorted(kept["added"])) == (["current_model_state"], ["averaging_state", "state_dict"])


class Unplain(Small):
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["more"] = object()


class NeedsMore(Small):
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        del checkpoint["optimizer_states"]


@pytest.mark.parametrize(
    ("module", "message"),
    [(Unplain, r"hooks.*more"), (NeedsMore, r"NeedsMore.on_save_checkpoint needs 'optimizer_states'.*gets state_dict, epoch")],
)
def test_what_cannot_be_kept_is_named(module: type[Small], message: str) -> None:
    with pytest.raises((TypeError, RuntimeError), match=message):
        trainer(None).fit(module(), loader())


def test_without_hooks_nothing_is_called() -> None:
    made = trainer(None)
    made.fit(Small(), loader())
    assert not CheckpointHooks(made).any
