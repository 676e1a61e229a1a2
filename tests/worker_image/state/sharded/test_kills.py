"""A sharded training loses pods at random moments and changes its size, but not a bit."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker_image.state.sharded.exact_training import Records, Training
from tests.worker_image.state.test_state_memory import pods, run_pods, running_in_pods

pytestmark = [pytest.mark.process, pytest.mark.torch]


def train(records: Path, steps: int) -> None:
    """Goes on for a number of steps.

    Each rank finds what it has in the step where it begins, and then in each step.
    """
    training = Training(None, records, every=1)
    training.restore()
    training.steps(training.state.step + steps, seconds=0.005)


def kill(
    servers: list[Any], folder: Path, chance: random.Random, begun: Callable[[], object]
) -> int:
    """Kills a process of a group at a random moment after another one, and returns its rank."""
    victim = chance.randrange(len(servers))
    with running_in_pods(servers, 1, train, folder, 1_000_000) as group:
        until(lambda: begun() or any(process.exitcode is not None for process in group.processes))
        time.sleep(chance.uniform(0, 0.4))
        group.processes[victim].kill()
        codes, errors = group.exit_codes(), group.errors()
    assert codes[victim] == -signal.SIGKILL, errors
    assert None not in codes and "AssertionError" not in errors, errors
    return victim


@pytest.mark.parametrize(
    ("size", "kills"),
    [(3, 2), *(pytest.param(size, 50, marks=pytest.mark.long) for size in (2, 4, 6))],
    ids=lambda each: f"{each}",
)
def test_pods_are_lost_at_random_moments(size: int, kills: int, tmp_path: Path) -> None:
    """A pod is lost once all shards have copies in its group, or two would be gone at once.

    Processes alone die at any moment.
    """
    chance, records = random.Random(size), Records(tmp_path)
    with ExitStack() as stack:

        def more(count: int) -> list[Any]:
            return stack.enter_context(pods(count))

        servers = more(size)
        for _ in range(kills):
            if chance.random() < 0.5:
                before = len(records.all("begun"))
                # A rank that still connects to another one would wait for it.
                all_begun = before + len(servers)
                kill(
                    servers,
                    tmp_path,
                    chance,
                    lambda all_begun=all_begun: len(records.all("begun")) >= all_begun,
                )
            step = records.sealed().step
            del servers[
                kill(servers, tmp_path, chance, lambda step=step: records.sealed().step > step)
            ]
            after = max(1, size + chance.choice((-1, 0, 1)))
            servers += more(max(0, after - len(servers)))
            if len(servers) == 1:
                run_pods(servers, 1, train, tmp_path, 5)
                servers += more(1)
        run_pods(servers, 1, train, tmp_path, 5)
    assert records.sealed().step >= kills
