from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from elastic_pytorch.group import in_process

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("arguments", "module", "message"),
    [
        ({"limit_train_batches": 2}, "Small", "limit_train_batches leave out samples"),
        ({"overfit_batches": 2}, "Small", "overfit_batches"),
        ({"fast_dev_run": True}, "Small", "fast_dev_run"),
        ({"reload_dataloaders_every_n_epochs": 1}, "Small", "reload_dataloaders_every_n_epochs"),
        (
            {"micro_batch_size": 2, "accumulate_grad_batches": 2},
            "Small",
            "takes the place of accumulate_grad_batches",
        ),
        ({"micro_batch_size": 2}, "Manual", "leave out micro_batch_size: with manual optimization"),
        ({}, "Forgets", "call self.manual_backward"),
        ({}, "Skips", "on_train_batch_start must not return -1"),
    ],
)
def test_what_does_not_go_with_it_is_named(
    small: ModuleType, arguments: dict[str, Any], module: str, message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        small.trainer(None, **arguments).fit(getattr(small, module)(), small.loader())


def test_a_schedule_of_accumulation_does_not_go_with_micro_batches(small: ModuleType) -> None:
    schedule = small.callbacks.GradientAccumulationScheduler({1: 2})
    with pytest.raises(RuntimeError, match="takes the place of"):
        small.trainer(None, micro_batch_size=2, callbacks=schedule).fit(
            small.Small(), small.loader()
        )


def test_another_strategy_is_refused(small: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = small.trainer(None)
    monkeypatch.setattr(made.strategy, "__class__", small.L.pytorch.strategies.FSDPStrategy)
    with pytest.raises(RuntimeError, match=r'FSDPStrategy .*use Trainer\(strategy="ddp"\)'):
        made.callbacks[0].setup(made, small.Small(), "fit")


def test_checkpoint_of_lightnings_to_go_on_from_is_refused(
    small: ModuleType, tmp_path: Path
) -> None:
    first = small.trainer(None)
    first.fit(small.Small(), small.loader())
    first.save_checkpoint(tmp_path / "some.ckpt")
    with pytest.raises(
        RuntimeError, match=r"leave ckpt_path out of Trainer\.fit: .*load_from_checkpoint"
    ):
        small.trainer(None).fit(small.Small(), small.loader(), ckpt_path=tmp_path / "some.ckpt")


def test_in_process_is_refused(small: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "active", lambda: True)
    with pytest.raises(RuntimeError, match="leave out the decorator"):
        small.trainer(None).fit(small.Small(), small.loader())
