"""The char-lm example with the training library: replicated on all ranks, and sharded over them.

Under stock torchrun.
"""

from pathlib import Path

import pytest

from tests.examples.test_char_lm import Output, train

pytestmark = [pytest.mark.process, pytest.mark.long]

FEW = ("--context", "16", "--batch-size", "13")
SMALL = ("--width", "32", "--layers", "2", "--micro-batch-size", "4", "--loader-workers", "1")


def run(script: str, folder: Path, workers: int, steps: int, *options: str) -> Output:
    output = train(folder, *FEW, *options, workers=workers, steps=steps, script=script)
    assert (output.workers, output.done_at) == (workers, steps)
    return output


@pytest.mark.parametrize(
    ("script", "options"), [("train_elastic.py", ()), ("train_gpu.py", SMALL)], ids=["cpu", "gpu"]
)
def test_a_group_of_another_size_goes_on_where_one_has_ended(
    script: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """The script for GPUs, too, runs without one."""
    first = run(script, tmp_path, 2, 12, *options)
    assert (first.started_at, list(first.losses)) == (0, list(range(1, 13)))
    second = run(script, tmp_path, 1, 18, *options)
    assert second.started_at == 12
    assert second.validation_loss < first.validation_loss < first.losses[1]


def test_a_sharded_model_learns_and_is_saved(tmp_path: Path) -> None:
    output = run("train_fsdp2.py", tmp_path, 2, 12)
    assert output.started_at == 0
    assert output.validation_loss < output.losses[1]
    assert [path.name for path in (tmp_path / "test").glob("*.sharded")] == [
        "checkpoint-g000001-s000000012.sharded"
    ]
