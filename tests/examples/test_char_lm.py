"""The char-lm example under stock torchrun."""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "char-lm"
STEP = re.compile(r"^step (\d+)/\d+  loss ([\d.]+)  workers (\d+)", re.MULTILINE)
START = re.compile(r"^start at step (\d+)/\d+  workers (\d+)$", re.MULTILINE)
DONE = re.compile(r"^done at step (\d+)/\d+  validation loss ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Output:
    text: str
    started_at: int
    workers: int
    losses: dict[int, float]
    done_at: int
    validation_loss: float


def under_torchrun(script: Path, *options: str, workers: int, cwd: Path | None = None) -> str:
    """What a script prints under stock torchrun, with the package of this checkout at hand."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    finished = subprocess.run(
        [sys.executable, *torchrun, str(script), *options],
        env=os.environ | {"PYTHONPATH": str(ROOT / "worker_image")},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    return finished.stdout


def train(
    folder: Path, *options: str, workers: int, steps: int, script: str = "train.py"
) -> Output:
    common = ("--checkpoint-dir", str(folder), "--run-id", "test", "--log-every", "1")
    more = ("--steps", str(steps), *options)
    text = under_torchrun(EXAMPLE / script, *common, *more, workers=workers)
    start, done = START.search(text), DONE.search(text)
    assert start and done, text
    return Output(
        text=text,
        started_at=int(start[1]),
        workers=int(start[2]),
        losses={int(step): float(loss) for step, loss, _ in STEP.findall(text)},
        done_at=int(done[1]),
        validation_loss=float(done[2]),
    )


def checkpoints(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "test").iterdir())


@pytest.mark.long
@pytest.mark.process
def test_goes_on_at_the_saved_step_with_another_world_size_and_survives_a_torn_checkpoint(
    tmp_path: Path,
) -> None:
    few_characters = ("--context", "16", "--batch-size", "12", "--checkpoint-every", "5")

    first = train(tmp_path, *few_characters, workers=2, steps=13)
    assert (first.started_at, first.workers, first.done_at) == (0, 2, 13)
    assert list(first.losses) == list(range(1, 14))
    assert first.losses[13] < first.losses[1]
    assert checkpoints(tmp_path) == ["step-00000010.pt", "step-00000013.pt"]

    newest = tmp_path / "test" / "step-00000013.pt"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    left_behind = tmp_path / "test" / "0123.partial"
    left_behind.write_bytes(b"half a checkpoint")

    second = train(tmp_path, *few_characters, workers=1, steps=20)
    assert "cannot read" in second.text
    assert (second.started_at, second.workers, second.done_at) == (10, 1, 20)
    assert list(second.losses) == list(range(11, 21))
    assert checkpoints(tmp_path) == ["step-00000015.pt", "step-00000020.pt"]

    finished = train(tmp_path, *few_characters, workers=1, steps=20)
    assert (finished.started_at, finished.losses) == (20, {})
    assert finished.validation_loss == pytest.approx(second.validation_loss, abs=0.002)


@pytest.mark.process
@pytest.mark.long
def test_loss_falls_in_a_short_run(tmp_path: Path) -> None:
    run = train(tmp_path, "--context", "32", workers=2, steps=60)
    assert 4.3 < run.losses[1] < 5.0
    assert run.losses[60] < 3.1
    assert run.validation_loss < 3.4


@pytest.mark.torch
def test_a_resumed_epoch_goes_on_with_the_samples_not_yet_seen_whatever_the_world_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    data = importlib.import_module("data")

    def order(workers: int, position: int) -> list[int]:
        samplers = []
        for rank in range(workers):
            sampler = data.ResumableSampler(samples, num_replicas=workers, rank=rank, seed=7)
            sampler.set_epoch(3)
            sampler.position = position
            samplers.append(sampler)
        assert all(len(list(sampler)) == len(sampler) for sampler in samplers)
        return [sample for turn in zip(*samplers, strict=True) for sample in turn]

    samples = data.Samples(torch.arange(500), context=16, stride=4)
    epoch = order(1, 0)[:120]
    for workers in (2, 3, 4):
        assert order(workers, 0)[:120] == epoch
        assert order(workers, 48)[: 120 - 48] == epoch[48:]
