"""The char-lm model through random resizes and kills, by the operator's planner and real agents.

What comes out is compared with a run that nobody has touched: one process, no group, no agent.
"""

import tests.python_of_operator  # noqa: F401 - leaves this module out

# isort: split

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.local_operator import LocalOperator, local_operator
from elastic_pytorch_operator.api.conditions import has_ended

from tests.paths import ROOT
from tests.worker_image.warm_python import run_python, script_code

pytestmark = pytest.mark.process

EXAMPLES = ROOT / "examples"
SCRIPTS = ROOT / "tests" / "worker_image" / "scripts"
SEED = int(os.environ.get("ELASTIC_PYTORCH_TEST_SEED", "7"))
SAMPLES, BATCH, EPOCHS = 650, 20, 2
STEPS = EPOCHS * -(-SAMPLES // BATCH)


def read(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def check_steps(steps: list[dict[str, Any]]) -> None:
    """Each step of a whole batch, and each sample once an epoch, as last computed."""
    newest = {
        step: max(e["generation"] for e in steps if e["step"] == step)
        for step in {e["step"] for e in steps}
    }
    assert sorted(newest) == list(range(1, STEPS + 1))
    seen: Counter[tuple[int, int]] = Counter()
    for step, generation in newest.items():
        ranks = [e for e in steps if (e["step"], e["generation"]) == (step, generation)]
        samples = [(e["epoch"], sample) for e in ranks for sample in e["samples"]]
        assert len(samples) in (BATCH, SAMPLES % BATCH), f"step {step}: {ranks}"
        seen.update(samples)
    assert seen == {(epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SAMPLES)}


def train_undisturbed(out: Path) -> dict[str, Any]:
    import torch

    out.mkdir()
    code = script_code(
        SCRIPTS / "char_lm.py", "--example", str(EXAMPLES / "char-lm"), "--out", str(out)
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    check_steps(read(out / "steps"))
    loaded: dict[str, Any] = torch.load(out / "model.pt")
    return loaded


def manifest() -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "any",
        "args": [
            "/scripts/char_lm.py",
            "--example",
            "/examples/char-lm",
            "--out",
            "/out",
            "--step-seconds",
            "0.05",
        ],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    volumes = [{"name": "out", "hostPath": {"path": "/any"}}]
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 10}
    return {
        "apiVersion": "elasticpytorch.dev/v1alpha1",
        "kind": "ElasticPyTorchJob",
        "metadata": {"name": "random", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "minReplicas": 1,
            "maxReplicas": 4,
            "failurePolicy": {"maxFailures": 20},
            "template": {"spec": spec},
        },
    }


async def until(
    fulfilled: Callable[[], bool], what: Callable[[], str], seconds: float = 120.0
) -> None:
    deadline = time.monotonic() + seconds
    while not fulfilled():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.05)


async def disturb(
    operator: LocalOperator, changes: int, dice: random.Random, steps: Path, lines: list[str]
) -> list[str]:
    """Does random things to the job, each after some steps in peace; returns them.

    Two workers at least hold the state then.
    """
    done: list[str] = []
    slow = steps.with_name("slow")

    def status() -> dict[str, Any]:
        found: dict[str, Any] = operator.cluster.job("random")["status"]
        return found

    def said() -> str:
        return f"seed {SEED}, after {done}: {status()}"

    for change in range(changes):
        target = (change + 1) * STEPS // (changes + 2)
        await until(
            lambda target=target: (
                any(e["step"] >= target for e in read(steps)[-8:]) or has_ended(status())
            ),
            said,
        )
        assert not has_ended(status()), said()
        slow.touch()
        await until(lambda: status().get("worldSize", 0) >= 2, said)
        slow.unlink()
        ranked = [worker["name"] for worker in status().get("workers", []) if "rank" in worker]
        kind = dice.choice(["resize", "kill process", "kill pod"])
        if kind == "resize":
            replicas = dice.choice(
                [n for n in range(2, 5) if n != operator.cluster.job("random")["spec"]["replicas"]]
            )
            job = operator.cluster.job("random")
            operator.cluster.apply_job({**job, "spec": {**job["spec"], "replicas": replicas}})
            done.append(f"resize to {replicas}")
        elif kind == "kill pod":
            pod = dice.choice(ranked)
            os.kill(operator.kubelet.process_id(pod), signal.SIGKILL)
            done.append(f"kill pod {pod}")
        else:
            pod = dice.choice(ranked)
            started = [line for line in lines if line.startswith(pod) and "workers started" in line]
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(started[-1].split()[-1]), signal.SIGKILL)
            done.append(f"kill a process of {pod}")
    return done


@pytest.mark.parametrize("changes", [3, pytest.param(8, marks=pytest.mark.long)])
async def test_a_disturbed_training_is_that_of_a_run_nobody_touched(
    tmp_path: Path, changes: int
) -> None:
    import torch

    undisturbed = train_undisturbed(tmp_path / "undisturbed")
    lines: list[str] = []

    def write_line(pod: str, line: str) -> None:
        lines.append(f"{pod} | {line}")
        with (tmp_path / "log").open("a") as file:
            file.write(f"{pod} | {line}\n")

    async with local_operator(
        tmp_path / "local",
        {"/examples": EXAMPLES, "/scripts": SCRIPTS},
        write_line=write_line,
    ) as operator:
        operator.cluster.apply_job(manifest())
        out = tmp_path / "local"
        await until(lambda: bool(list(out.rglob("steps"))), lambda: "\n".join(lines[-50:]))
        [steps] = out.rglob("steps")
        done = await disturb(operator, changes, random.Random(SEED), steps, lines)
        await until(
            lambda: has_ended(operator.cluster.job("random")["status"]),
            lambda: f"{done}\n" + "\n".join(lines[-80:]),
        )
        status = operator.cluster.job("random")["status"]
    print(
        f"seed {SEED}: {done}; "
        f"{status['interruptions']} interruptions, {status['failures']} failures"
    )
    assert status["state"] == "Complete", "\n".join(lines[-80:])
    check_steps(read(steps))
    twice = Counter(step for step, _ in {(e["step"], e["generation"]) for e in read(steps)})
    kills = sum("kill" in what for what in done)
    assert sum(count - 1 for count in twice.values()) <= kills, (
        "a kill costs a step at most, a resize none"
    )
    model = torch.load(steps.parent / "model.pt")
    for name, value in undisturbed.items():
        torch.testing.assert_close(
            model[name], value, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
