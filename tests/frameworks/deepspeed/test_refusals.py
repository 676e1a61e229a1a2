"""What an engine must be, and how samples must be dealt to ranks, before its group may change."""

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("deepspeed") is None:
    pytest.skip("needs DeepSpeed: pip install deepspeed", allow_module_level=True)

from elastic_pytorch.deepspeed import DeepSpeedState, check_engine, check_place

from tests.paths import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.long]


@dataclass
class Engine:
    stage: int
    universal: bool
    pipeline_parallelism: bool = False
    data_parallel_group: Any = None

    def zero_optimization_stage(self) -> int:
        return self.stage

    def load_universal_checkpoint(self) -> bool:
        return self.universal


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_stage_of_zero_is_taken(stage: int) -> None:
    check_engine(Engine(stage, universal=True))


@pytest.mark.parametrize(
    ("engine", "what_to_do"),
    [
        (Engine(0, universal=True), '"stage": 1'),
        (Engine(2, universal=False), '"load_universal": true'),
        (
            Engine(1, universal=True, pipeline_parallelism=True),
            r"not for a PipelineModule.* and elastic\.ShardedState",
        ),
    ],
)
def test_an_engine_that_could_not_be_resized_is_refused_with_what_to_do(
    engine: Engine, what_to_do: str
) -> None:
    with pytest.raises(ValueError, match=what_to_do):
        check_engine(engine)


def test_weights_that_rank_0_alone_would_load_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"takes no initial.*before deepspeed\.initialize"):
        DeepSpeedState(
            tmp_path, Engine(2, universal=True), DeepSpeedState.Options(every=1, initial=print)
        )


@pytest.mark.parametrize("place", [(0, 1), (3, 4)])
def test_samples_go_to_the_data_parallel_ranks(place: tuple[int, int]) -> None:
    check_place("sampler", place, place)


@pytest.mark.parametrize(
    ("samples", "data_parallel", "words"),
    [
        ((3, 4), (1, 2), "rank 3 of 4, and to DeepSpeed 1 of 2"),
        ((1, 4), (2, 4), "rank 1 of 4, and to DeepSpeed 2 of 4"),
        ((0, 2), None, "rank 0 of 2, and to DeepSpeed unknown"),
    ],
)
def test_samples_for_other_ranks_are_refused_with_what_to_give(
    samples: tuple[int, int], data_parallel: tuple[int, int] | None, words: str
) -> None:
    with pytest.raises(
        ValueError,
        match=f"to the sampler this rank is data-parallel {words}.*the data-parallel mesh",
    ):
        check_place("sampler", samples, data_parallel)


def test_engines_of_deepspeed_are_told_apart(tmp_path: Path) -> None:
    """A pipeline, and a model that is parallel by tensors, without and with its data's mesh."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    command += [str(Path(__file__).parent / "scripts" / "engines.py"), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "worker_image"), os.environ.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [
        line.split(": ", 1)
        for line in done.stdout.splitlines()
        if line.startswith(("pipeline", "tensors", "mesh"))
    ]
    assert sorted(kind for kind, _ in lines) == ["mesh"] * 4 + ["pipeline"] * 4 + ["tensors"] * 4
    told = {kind: [words for each, words in lines if each == kind] for kind, _ in lines}
    assert all("not for a PipelineModule" in words for words in told["pipeline"])
    assert any("rank 3 of 4, and to DeepSpeed 1 of 2" in words for words in told["tensors"])
    assert all("give the sampler the data-parallel mesh" in words for words in told["tensors"])
    assert set(told["mesh"]) == {"taken"}
