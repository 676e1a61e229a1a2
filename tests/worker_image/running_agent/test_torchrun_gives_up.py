"""A user's torchrun without restarts left tells the operator why, whatever a shell makes of it."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.torch_features import needs_torchrun_handlers
from tests.worker_image.agents import JOINING, Agents
from tests.worker_image.scripted_operator import Heard, ScriptedOperator

pytestmark = [pytest.mark.torch, pytest.mark.process, needs_torchrun_handlers]

TORCHRUN = f"{shlex.quote(sys.executable)} -m torch.distributed.run"
RAISES = "raise ValueError('nan in step 10')\n"
HOOKED = "import sys\nsys.excepthook = lambda *_: print('my own words', file=sys.stderr)\n" + RAISES
FORKS = (
    "import os\nchild = os.fork()\nif not child:\n    raise KeyError('of the child')\n"
    "os.waitpid(child, 0)\nraise SystemExit(3)\n"
)
CRASHES = "import os\nos.kill(os.getpid(), 11)\n"


def told_by(operator: ScriptedOperator, agents: Agents, shell: str) -> tuple[Heard, int]:
    """What a worker with a command tells of its failure, and the exit code of its container."""
    agent = agents("w0", shell, command=["bash", "-c"], **JOINING)
    number = operator.begin("w0")
    operator.wait_for("failed", "w0", number=number)
    code = agent.wait()
    return operator.last("w0"), code


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            RAISES,
            {"message": "ValueError: nan in step 10", "exception": "ValueError", "exitCode": 1},
        ),
        *(
            pytest.param(source, told, marks=pytest.mark.long)
            for source, told in (
                (HOOKED, {"message": "exited with code 1", "exitCode": 1}),
                (FORKS, {"message": "exited with code 3", "exitCode": 3}),
                (CRASHES, {"message": "killed by SIGSEGV", "signal": "SIGSEGV", "exitCode": -11}),
            )
        ),
    ],
    ids=["raises", "own hook", "child raises", "crashes"],
)
def test_failure_is_told_although_the_shell_hides_it(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path, source: str, told: dict[str, Any]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    heard, code = told_by(
        operator, agents, f"{TORCHRUN} --max-restarts=0 {script} | tee {tmp_path / 'train.log'}"
    )
    assert code == 0
    assert heard.givesUp
    assert {name: heard.failure[name] for name in told} == told
    if source == RAISES:
        assert heard.failure["traceback"].startswith("Traceback (most recent call last):")
        assert f'File "{script}", line 1' in heard.failure["traceback"]


@pytest.mark.long
def test_program_that_cannot_be_started(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    heard, _ = told_by(
        operator, agents, f"{TORCHRUN} --max-restarts=0 --no-python {tmp_path / 'nothing'} || true"
    )
    assert heard.givesUp
    assert str(tmp_path / "nothing") in heard.failure["message"]
