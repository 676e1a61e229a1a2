import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("max_steps", "epochs", "automatic", "total"),
    [
        (-1, 3, True, 30),
        (-1, -1, True, None),
        (-1, None, True, None),
        (7, -1, True, 7),
        (70, 3, True, 30),
        (7, 3, False, None),
    ],
)
def test_last_step(
    small: ModuleType, max_steps: int, epochs: int | None, automatic: bool, total: int | None
) -> None:
    from elastic_pytorch.lightning.callback import total_steps

    assert (
        total_steps(max_steps=max_steps, epochs=epochs, steps_per_epoch=10, automatic=automatic)
        == total
    )


def test_mean_loss_is_over_samples(small: ModuleType) -> None:
    from elastic_pytorch.training.training_loop import mean_loss

    assert mean_loss([]) is None
    assert mean_loss([(1, torch.tensor(2.0)), (3, torch.tensor(6.0))]) == 5.0


def test_names_of_several(small: ModuleType) -> None:
    from elastic_pytorch.lightning.callback import numbered

    assert numbered("optimizer", [1, 2, 3]) == {"optimizer": 1, "optimizer_1": 2, "optimizer_2": 3}


@pytest.mark.parametrize(
    "arguments", [{}, {"accumulate_grad_batches": 2}, {"micro_batch_size": 3}], ids=str
)
def test_a_second_process_goes_on_within_the_epoch(
    small: ModuleType, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    whole = small.fit(small.Small(), None, **arguments)
    lost_at = len(whole.seen) - 2
    cut = small.fit(small.LostAt(lost_at), tmp_path, **arguments)
    assert len(cut.seen) == lost_at
    rest = small.fit(small.Small(), tmp_path, **arguments)
    assert rest.seen[0] in cut.seen[-2:] or rest.seen[0] == whole.seen[len(cut.seen)]
    assert rest.seen == whole.seen[-len(rest.seen) :], "batches are numbered on"
    assert small.weights(rest) == pytest.approx(small.weights(whole))


def test_a_training_that_is_done_takes_no_step(small: ModuleType, tmp_path: Path) -> None:
    first = small.fit(small.Small(), tmp_path)
    second = small.fit(small.Small(), tmp_path)
    assert (len(first.seen), second.seen) == (8, [])
    assert small.weights(first) == small.weights(second)


def test_a_group_of_one(small: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
    }.items():
        monkeypatch.setenv(name, value)
    assert len(small.fit(small.Small(), None).seen) == 8


def test_a_second_fit_of_one_trainer(small: ModuleType) -> None:
    made = small.trainer(None, micro_batch_size=3)
    for _ in range(2):
        made.fit(small.Small(), small.loader())
        assert made.accumulate_grad_batches == 1


def test_trainings_in_one_script_have_names(small: ModuleType, tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert len(small.fit(small.Small(), tmp_path, name=name).seen) == 8


def test_states_of_other_callbacks_are_kept(small: ModuleType, tmp_path: Path) -> None:
    def stopping() -> Any:
        return small.callbacks.EarlyStopping(
            "train", patience=1, mode="max", check_on_train_epoch_end=True
        )

    first = small.fit(small.Logs(), tmp_path, epochs=9, callbacks=stopping())
    again = stopping()
    second = small.fit(small.Logs(), tmp_path, epochs=9, callbacks=again)
    assert (len(first.seen), second.seen, again.wait_count) == (8, [], 1), "it has stopped before"


def gradients(batch_size: int) -> list[float]:
    """Of one step in this process's group, of which Lightning is told by the environment."""
    from tests.worker_image.lightning.small_training import Small, fit, weights

    os.environ |= {
        "LOCAL_RANK": os.environ["RANK"],
        "LOCAL_WORLD_SIZE": os.environ["WORLD_SIZE"],
        "GROUP_RANK": "0",
    }
    arguments: dict[str, Any] = {
        "max_steps": 1,
        "epochs": -1,
        "strategy": "ddp",
        "batch_size": batch_size,
    }
    arguments["devices"] = int(os.environ["WORLD_SIZE"])
    return weights(fit(Small(), None, **arguments))


@pytest.mark.process
def test_uneven_shares_are_weighted(small: ModuleType) -> None:
    alone = small.weights(small.fit(small.Small(), None, max_steps=1, epochs=-1, batch_size=7))
    for rank in run_group(2, gradients, 7):
        assert rank == pytest.approx(alone)
