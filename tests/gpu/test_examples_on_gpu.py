"""The examples' jobs for GPUs in local mode: on one GPU for all workers, with fewer steps."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_local.local_operator import local_operator

from tests.local.local_jobs import EXAMPLES, LocalJob
from tests.worker_image.one_gpu import one_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.process]


@asynccontextmanager
async def job_on_one_gpu(tmp_path: Path, manifest: str, *options: str) -> AsyncIterator[LocalJob]:
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / manifest).read_text())
    job["metadata"]["namespace"] = "default"
    job["spec"]["resizePolicy"] = {"settleSeconds": 2}
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {"nvidia.com/gpu": 1}
    container["args"] += options
    environment: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in one_gpu("").items()
    ]
    environment[0] = {
        "name": "NCCL_HOSTID",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
    }
    container["env"] = [
        each for each in container.get("env", ()) if each["name"] != "NCCL_DEBUG"
    ] + environment
    lines: dict[str, list[str]] = {}

    def note(pod: str, line: str) -> None:
        lines.setdefault(pod, []).append(line)

    async with local_operator(tmp_path, {"/examples": EXAMPLES}, write_line=note) as operator:
        operator.cluster.apply_job(job)
        running = LocalJob(operator, job["metadata"]["name"], lines)
        try:
            yield running
        finally:
            print("\n".join(running.events()), running.text[-20000:], sep="\n")


async def until_said(job: LocalJob, pattern: str, what: str, count: int = 1) -> None:
    await job.until(lambda: len(re.findall(pattern, job.text, re.MULTILINE)) >= count, what)


async def test_all_reduce_survives_a_lost_pod(tmp_path: Path) -> None:
    async with job_on_one_gpu(
        tmp_path, "all-reduce/job-gpu.yaml", "--steps", "150", "--step-seconds", "0.05"
    ) as job:
        await job.until(lambda: len(job.steps(2)) > 20, "steps of two workers")
        lost, begun = job.pods()[-1]["metadata"]["name"], time.time()
        job.kill(lost)
        await until_said(job, r"^DONE rank=", "the end")
        assert await job.until_ended() == "Complete"
        assert job.status["failures"] == 0
        times = [
            float(at)
            for at in re.findall(r"^STEP \d+ world=\d time=([\d.]+)", job.text, re.MULTILINE)
        ]
        print(
            "=== all-reduce: "
            f"next step {min(at for at in times if at > begun + 0.3) - begun:.2f} s after the loss"
        )


async def test_char_lm_learns_in_bfloat16_and_loses_next_to_nothing_with_a_pod(
    tmp_path: Path,
) -> None:
    options = ("--steps", "150", "--log-every", "5", "--width", "256", "--layers", "4")
    async with job_on_one_gpu(tmp_path, "char-lm/job-gpu.yaml", *options) as job:
        await until_said(job, r"^step 20/150 .*workers 2", "steps of two workers")
        job.kill(job.pods()[-1]["metadata"]["name"])
        await until_said(job, r"^start at step", "a second group", count=2)
        first, *others = [
            int(step) for step in re.findall(r"^start at step (\d+)/", job.text, re.MULTILINE)
        ]
        assert first == 0
        print(f"=== char-lm: goes on from {others}")
        assert all(step >= 3 for step in others), "it goes on from a commit"
        assert await job.until_ended() == "Complete"
        losses = [
            float(loss)
            for loss in re.findall(r"^step \d+/150  loss ([\d.]+)", job.text, re.MULTILINE)
        ]
        assert losses[-1] < losses[0] - 0.5
        assert job.status["failures"] == 0


async def test_digits_learns_in_float16_with_a_scaler_and_in_process(tmp_path: Path) -> None:
    async with job_on_one_gpu(tmp_path, "digits/job-gpu.yaml", "--epochs", "6") as job:
        await until_said(job, r"^epoch 1/6", "an epoch")
        job.operator.cluster.scale_job(job.name, 1)
        await until_said(job, r"^start at step \d+  epoch \d+  workers 1", "a group of one")
        assert await job.until_ended() == "Complete"
        accuracies = [
            float(found)
            for found in re.findall(r"^epoch .* accuracy ([\d.]+)", job.text, re.MULTILINE)
        ]
        assert len(accuracies) >= 5
        assert accuracies[-1] > 0.9
        assert job.status["failures"] == 0


async def test_fsdp2_goes_on_with_another_size(tmp_path: Path) -> None:
    options = ("--steps", "60", "--log-every", "5", "--checkpoint-every", "10")
    async with job_on_one_gpu(tmp_path, "char-lm/job-fsdp2.yaml", *options) as job:
        await until_said(job, r"^step 15/60 .*workers 3", "steps of three workers")
        job.operator.cluster.scale_job(job.name, 2)
        await until_said(job, r"^start at step \d+/60  workers 2", "a group of two")
        assert await job.until_ended() == "Complete"
        losses = [
            float(loss)
            for loss in re.findall(r"^step \d+/60  loss ([\d.]+)", job.text, re.MULTILINE)
        ]
        assert losses[-1] < losses[0] - 0.5
        assert job.status["failures"] == 0
