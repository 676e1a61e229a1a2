"""The char-lm example with the training library: replicated on all ranks, and sharded over them.

Under stock torchrun.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.job_schema import VALIDATOR
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "char-lm"
STEP = re.compile(r"^step (\d+)/\d+  loss ([\d.]+)  workers (\d+)", re.MULTILINE)
START = re.compile(r"^start at step (\d+)/\d+  workers (\d+)$", re.MULTILINE)
DONE = re.compile(r"^done at step (\d+)/\d+  validation loss ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Output:
    started_at: int
    workers: int
    losses: dict[int, float]
    done_at: int
    validation_loss: float


def train(
    script: str, folder: Path, *, workers: int, steps: int, options: tuple[str, ...] = ()
) -> Output:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={workers}",
    ]
    command += [
        str(EXAMPLE / script),
        "--checkpoint-dir",
        str(folder),
        "--run-id",
        "test",
        "--log-every",
        "1",
    ]
    command += ["--context", "16", "--batch-size", "13", "--steps", str(steps), *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "worker_image")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    start, end = START.search(done.stdout), DONE.search(done.stdout)
    assert start and end, done.stdout
    losses = {int(step): float(loss) for step, loss, _ in STEP.findall(done.stdout)}
    return Output(int(start[1]), int(start[2]), losses, int(end[1]), float(end[2]))


@pytest.mark.long
@pytest.mark.process
def test_a_group_of_another_size_goes_on_where_one_has_ended(tmp_path: Path) -> None:
    first = train("train_elastic.py", tmp_path, workers=2, steps=12)
    assert (first.started_at, first.workers, first.done_at) == (0, 2, 12)
    assert list(first.losses) == list(range(1, 13))
    second = train("train_elastic.py", tmp_path, workers=1, steps=18)
    assert (second.started_at, second.workers, second.done_at) == (12, 1, 18)
    assert list(second.losses) == list(range(13, 19))
    assert second.validation_loss < first.validation_loss < first.losses[1]


@pytest.mark.process
@pytest.mark.long
def test_a_sharded_model_learns_and_is_saved(tmp_path: Path) -> None:
    output = train("train_fsdp2.py", tmp_path, workers=2, steps=12)
    assert (output.started_at, output.workers, output.done_at) == (0, 2, 12)
    assert output.validation_loss < output.losses[1]
    assert [path.name for path in (tmp_path / "test").glob("*.sharded")] == [
        "checkpoint-g000001-s000000012.sharded"
    ]


@pytest.mark.process
@pytest.mark.long
def test_the_script_for_gpus_runs_without_one_and_goes_on_with_another_group(
    tmp_path: Path,
) -> None:
    small = ("--width", "32", "--layers", "2", "--micro-batch-size", "4", "--loader-workers", "1")
    first = train("train_gpu.py", tmp_path, workers=2, steps=12, options=small)
    assert (first.started_at, first.workers, first.done_at) == (0, 2, 12)
    assert list(first.losses) == list(range(1, 13))
    second = train("train_gpu.py", tmp_path, workers=1, steps=18, options=small)
    assert (second.started_at, second.workers, second.done_at) == (12, 1, 18)
    assert second.validation_loss < first.validation_loss < first.losses[1]


@pytest.mark.parametrize("name", ["elastic", "fsdp2", "gpu"])
def test_the_job_runs_the_script_with_options_it_has(name: str) -> None:
    job = yaml.safe_load((EXAMPLE / f"job-{name}.yaml").read_text())
    VALIDATOR.validate(job)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    script, *arguments = container["args"]
    assert script == f"/examples/char-lm/train_{name}.py"
    options = [argument for argument in arguments if argument.startswith("--")]
    assert all(f'"{option}"' in (EXAMPLE / f"train_{name}.py").read_text() for option in options)
    (selector,) = (
        constraint["labelSelector"]["matchLabels"]
        for constraint in pod["topologySpreadConstraints"]
    )
    assert selector == {"elasticpytorch.dev/job-name": job["metadata"]["name"]}
