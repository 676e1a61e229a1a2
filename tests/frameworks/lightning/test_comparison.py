"""What Lightning's own way through resizes and a loss costs, beside that of the library.

Prints the figures of docs/use/lightning.md.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.frameworks.lightning.runs import ENVIRONMENT as SETTINGS
from tests.frameworks.lightning.runs import (
    SAMPLES,
    SCRIPT,
    WAIT_SECONDS,
    Agents,
    changes,
    train_resized,
    until_step,
    uses,
)
from tests.worker_image.agents import Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("lightning") is None, reason="needs Lightning: pip install lightning"
    ),
]


def test_stock_lightning_raises_at_the_first_resize_if_the_size_is_in_the_script(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path
) -> None:
    for worker in ("w0", "w1"):
        agents(worker, SCRIPT, "--stock", "--num-nodes", 2, "--folder", tmp_path, **SETTINGS)
    operator.wait_for("ready", "w0", "w1", seconds=WAIT_SECONDS)
    operator.declare("w0", "w1")
    until_step(events, 6, 2)
    operator.declare("w0", orderly=True)
    operator.wait_for("failed", "w0", seconds=WAIT_SECONDS)
    heard = operator.last("w0")
    assert "does not match the world size (1)" in heard.failure["message"]


@pytest.mark.parametrize("way", ["stock", "with the library"])
def test_table(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path, way: str
) -> None:
    train_resized(
        operator, events, agents, "--folder", tmp_path, *(["--stock"] if way == "stock" else [])
    )
    print(f"\n{way}")
    for sizes, again, seconds in changes(events):
        print(f"{sizes}: {again} steps computed again, {seconds:.1f} s without a step")
    used = uses(events, 0)
    twice, never = sum(count > 1 for count in used.values()), SAMPLES - len(used)
    print(
        f"of {SAMPLES} samples of the epoch with the changes, {twice} were used twice or more, "
        f"{never} never"
    )
    if way == "stock":
        assert twice + never > 0
    else:
        assert (twice, never) == (0, 0)
