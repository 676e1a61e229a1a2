"""What an engine must be configured for, before its group may change."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("deepspeed") is None:
    pytest.skip("needs DeepSpeed: pip install deepspeed", allow_module_level=True)

from elastic_pytorch.deepspeed import DeepSpeedState, check_engine

pytestmark = [pytest.mark.torch, pytest.mark.long]


@dataclass
class Engine:
    stage: int
    universal: bool

    def zero_optimization_stage(self) -> int:
        return self.stage

    def load_universal_checkpoint(self) -> bool:
        return self.universal


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_stage_of_zero_is_taken(stage: int) -> None:
    check_engine(Engine(stage, universal=True))


@pytest.mark.parametrize(
    ("engine", "what_to_set"),
    [(Engine(0, universal=True), '"stage": 1'), (Engine(2, universal=False), '"load_universal": true')],
)
def test_an_engine_that_could_not_be_resized_is_refused_with_what_to_set(engine: Engine, what_to_set: str) -> None:
    with pytest.raises(ValueError, match=what_to_set):
        check_engine(engine)


def test_weights_that_rank_0_alone_would_load_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"takes no initial.*before deepspeed\.initialize"):
        DeepSpeedState(tmp_path, Engine(2, universal=True), every=1, initial=print)
