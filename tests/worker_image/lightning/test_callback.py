from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")

import torch
from elastic_pytorch.lightning.callback import mean, numbered, total_steps
from lightning.pytorch.callbacks import EarlyStopping

from tests.worker_image.lightning.small_training import Small, loader, trainer
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


class Stopped(Exception):
    """The process ends here."""


class StopsAt(Small):
    """Stops in the midst of training, as a lost process does."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if len(self.seen) == self.batches:
            raise Stopped
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("max_steps", "epochs", "automatic", "total"),
    [(-1, 3, True, 30), (-1, -1, True, None), (-1, None, True, None), (7, -1, True, 7), (70, 3, True, 30), (7, 3, False, None)],
)
def test_last_step(max_steps: int, epochs: int | None, automatic: bool, total: int | None) -> None:
    assert total_steps(max_steps=max_steps, epochs=epochs, steps_per_epoch=10, automatic=automatic) == total


def test_mean_loss_is_over_samples() -> None:
    assert mean([]) is None
    assert mean([(1, torch.tensor(2.0)), (3, torch.tensor(6.0))]) == 5.0


def test_names_of_several() -> None:
    assert numbered("optimizer", [1, 2, 3]) == {"optimizer": 1, "optimizer_1": 2, "optimizer_2": 3}


def weights(module: Small) -> list[float]:
    return [x for p in module.parameters() for x in p.detach().flatten().tolist()]


def fit(module: Small, folder: Path | None, **arguments: Any) -> Small:
    torch.manual_seed(3)
    module.net.reset_parameters()
    trainer(folder, **arguments).fit(module, loader())
    return module


@pytest.mark.parametrize("arguments", [{}, {"accumulate_grad_batches": 2}, {"micro_batch_size": 3}], ids=str)
def test_a_second_process_goes_on_within_the_epoch(tmp_path: Path, arguments: dict[str, Any]) -> None:
    whole = fit(Small(), None, **arguments)
    cut = StopsAt(len(whole.seen) - 2)
    made = trainer(tmp_path, **arguments)
    torch.manual_seed(3)
    cut.net.reset_parameters()
    with pytest.raises(Stopped):
        made.fit(cut, loader())
    made.callbacks[0]._state.close()  # type: ignore[attr-defined] # a process that ends does so
    rest = fit(Small(), tmp_path, **arguments)
    assert rest.seen[0] in cut.seen[-2:] or rest.seen[0] == whole.seen[len(cut.seen)]
    assert rest.seen == whole.seen[-len(rest.seen) :], "batches are numbered on"
    assert weights(rest) == pytest.approx(weights(whole))


def test_a_training_that_is_done_takes_no_step(tmp_path: Path) -> None:
    first = fit(Small(), tmp_path)
    second = fit(Small(), tmp_path)
    assert (len(first.seen), second.seen) == (8, [])
    assert weights(first) == weights(second)


def test_a_group_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert len(fit(Small(), None).seen) == 8


def test_a_second_fit_of_one_trainer(tmp_path: Path) -> None:
    made = trainer(None, micro_batch_size=3)
    for _ in range(2):
        made.fit(Small(), loader())
        assert made.accumulate_grad_batches == 1


def test_trainings_in_one_script_have_names(tmp_path: Path) -> None:
    assert len(fit(Small(), tmp_path, name="first").seen) == len(fit(Small(), tmp_path, name="second").seen) == 8


def test_states_of_other_callbacks_are_kept(tmp_path: Path) -> None:
    def stopping() -> EarlyStopping:
        return EarlyStopping("train", patience=1, mode="max", check_on_train_epoch_end=True)

    class Logs(Small):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            self.log("train", 1.0)
            return loss

    first = fit(Logs(), tmp_path, epochs=9, callbacks=stopping())
    again = stopping()
    second = fit(Logs(), tmp_path, epochs=9, callbacks=again)
    assert (len(first.seen), second.seen, again.wait_count) == (8, [], 1), "it has stopped before"


def gradients(batch_size: int) -> list[float]:
    """Of one step in this process's group, of which Lightning is told by the environment."""
    import os

    os.environ |= {"LOCAL_RANK": os.environ["RANK"], "LOCAL_WORLD_SIZE": os.environ["WORLD_SIZE"], "GROUP_RANK": "0"}
    arguments: dict[str, Any] = {"max_steps": 1, "epochs": -1, "strategy": "ddp", "batch_size": batch_size}
    arguments["devices"] = int(os.environ["WORLD_SIZE"])
    return weights(fit(Small(), None, **arguments))


@pytest.mark.process
def test_uneven_shares_are_weighted() -> None:
    alone = weights(fit(Small(), None, max_steps=1, epochs=-1, batch_size=7))
    for rank in run_group(3, gradients, 7):
        assert rank == pytest.approx(alone)
