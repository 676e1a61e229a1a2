from types import ModuleType

import pytest

pytestmark = pytest.mark.torch


def test_counters_go_on_in_another_trainer(small: ModuleType) -> None:
    from elastic_pytorch.lightning.loop_progress import LoopProgress

    first = small.trainer(None)
    first.fit(small.Small(), small.loader())
    kept = LoopProgress(first).state_dict()
    assert (kept["optimizer_steps"], kept["batches"], kept["logged_steps"]) == (8, 8, 8)
    second = small.trainer(None)
    progress = LoopProgress(second)
    progress.load_state_dict(kept | {"metrics": {"loss": 0.5}, "should_stop": True})
    progress.go_to_epoch(2)
    assert (second.global_step, second.current_epoch, second.should_stop) == (8, 2, True)
    assert second.callback_metrics["loss"] == 0.5
    assert progress.state_dict() == kept | {"metrics": {"loss": 0.5}, "should_stop": True}
