"""The example of units: a job whose units leave and join in local mode, and stock torchrun."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_local.local_operator import local_operator

from tests.examples.test_char_lm import under_torchrun
from tests.local.local_jobs import EXAMPLES, LocalJob

EXAMPLE = EXAMPLES / "units"
STEP = re.compile(r"step (\d+)/\d+  loss ([\d.]+)  units (\d+) of (\d+)")
START = re.compile(r"start at step (\d+)/\d+  units (\d+) of (\d+)")
OPTIONS = ("--width", "64", "--batch-size", "50", "--log-every", "1", "--run-id", "test")


def train(folder: Path, *, processes: int, unit: int, steps: int) -> str:
    options = [*OPTIONS, "--checkpoint-dir", str(folder), "--unit", str(unit)]
    return under_torchrun(EXAMPLE / "train.py", *options, "--steps", str(steps), workers=processes)


def losses(output: str) -> dict[int, list[float]]:
    """The losses of each step, as often as it was computed."""
    found: dict[int, list[float]] = {}
    for step, loss, *_ in STEP.findall(output):
        found.setdefault(int(step), []).append(float(loss))
    return found


def as_in(undisturbed: str, output: str) -> bool:
    """Whether each step has another run's loss, within what the order of sums changes."""
    expected = losses(undisturbed)
    return all(
        loss == pytest.approx(expected[step][0], abs=0.005)
        for step, each in losses(output).items()
        for loss in each
    )


def job() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    manifest["metadata"]["namespace"] = "default"
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    container["args"] = [*container["args"][:3], *OPTIONS, "--steps", "1000000"]
    return manifest


@pytest.mark.process
@pytest.mark.long
async def test_units_leave_and_join_and_learn_what_one_process_does(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = {}
    async with local_operator(
        tmp_path,
        {"/examples": EXAMPLES},
        write_line=lambda pod, line: lines.setdefault(pod, []).append(line),
    ) as operator:
        operator.cluster.apply_job(job())
        training = LocalJob(operator, "units", lines)
        await training.until(lambda: len(losses(training.text)) >= 20, "some steps of two units")
        training.kill(
            next(
                pod["metadata"]["name"]
                for pod in training.pods()
                if "-worker-3-" in pod["metadata"]["name"]
            )
        )
        await training.until(
            lambda: ("1", "2") in {start[1:] for start in START.findall(training.text)},
            "a group of one unit",
        )
        await training.until(
            lambda: START.findall(training.text)[-1][1:] == ("2", "2"), "two units again"
        )
        operator.cluster.scale_job("units", 6)
        await training.until(
            lambda: STEP.findall(training.text)[-10][2:] == ("3", "2"), "some steps of three units"
        )
    output = training.text
    assert [start[1:] for start in START.findall(output)] == [
        ("2", "2"),
        ("1", "2"),
        ("2", "2"),
        ("3", "2"),
    ]
    last = max(losses(output))
    assert sorted(losses(output)) == list(range(1, last + 1))
    assert as_in(train(tmp_path / "alone", processes=1, unit=1, steps=last), output)


@pytest.mark.process
@pytest.mark.long
def test_another_number_of_units_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    first = train(tmp_path, processes=4, unit=2, steps=10)
    second = train(tmp_path, processes=2, unit=2, steps=20)
    assert START.findall(first + second) == [("0", "2", "2"), ("10", "1", "2")]
    assert [sorted(losses(each)) for each in (first, second)] == [
        list(range(1, 11)),
        list(range(11, 21)),
    ]
    assert as_in(train(tmp_path / "alone", processes=1, unit=1, steps=20), first + second)
