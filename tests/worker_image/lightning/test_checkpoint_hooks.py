from pathlib import Path
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("kind", ["averaging", "Counts"])
def test_a_second_process_goes_on_with_what_hooks_keep(
    small: ModuleType, kind: str, tmp_path: Path
) -> None:
    whole, cut, rest = (getattr(small, kind)() for _ in range(3))
    expected = small.fit(small.Small(), None, callbacks=whole)
    small.fit(small.LostAt(5), tmp_path, callbacks=cut)
    delivered = small.fit(small.Small(), tmp_path, callbacks=rest)
    assert 0 < len(delivered.seen) < len(expected.seen)
    # Of averaged weights, if there are any.
    torch.testing.assert_close(delivered.net.weight, expected.net.weight)
    assert getattr(rest, "batches", 8) == getattr(whole, "batches", 8) == 8


def test_the_module_s_own_state_is_not_kept_twice(small: ModuleType) -> None:
    from elastic_pytorch.lightning.checkpoint_hooks import CheckpointHooks

    made = small.trainer(None, callbacks=small.averaging())
    made.fit(small.Small(), small.loader())
    made.callbacks[-1].setup(made, made.lightning_module, "fit")
    kept = CheckpointHooks(made).state_dict()
    assert (kept["same"], sorted(kept["added"])) == (
        ["current_model_state"],
        ["averaging_state", "state_dict"],
    )


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("Unplain", r"hooks.*more"),
        (
            "NeedsMore",
            r"NeedsMore.on_save_checkpoint needs 'optimizer_states'.*gets state_dict, epoch",
        ),
    ],
)
def test_what_cannot_be_kept_is_named(small: ModuleType, module: str, message: str) -> None:
    with pytest.raises((TypeError, RuntimeError), match=message):
        small.trainer(None).fit(getattr(small, module)(), small.loader())


def test_without_hooks_nothing_is_called(small: ModuleType) -> None:
    from elastic_pytorch.lightning.checkpoint_hooks import CheckpointHooks

    made = small.trainer(None)
    made.fit(small.Small(), small.loader())
    assert not CheckpointHooks(made).any
