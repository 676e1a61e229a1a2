import signal
import sys
import time
from pathlib import Path

import pytest

from tests.torch_features import torchrun_has
from tests.waiting import until
from tests.worker_image.agents import SCRIPTS, Agent, Agents, Events, program
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


# Lines in one write: with PYTHONUNBUFFERED, print writes each word, and torch may read a line
# before it is whole.
SPEAK = """
import os, sys
rank = os.environ["RANK"]
sys.stdout.write(f"out of {rank} loss 1\\nout of {rank} something else\\n")
sys.stderr.write(f"err of {rank}\\n")
"""

RANK = """
import os, sys, time, torch
import torch.distributed as dist
import elastic_pytorch as elastic

state = elastic.State(None, elastic.State.Options(total_steps=10**6), model=torch.nn.Linear(1, 1))

@elastic.in_process
def train():
    dist.init_process_group("gloo")
    state.restore()
    print(f"of {dist.get_rank()} of {dist.get_world_size()}", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
        state.commit()

train()
"""


@pytest.fixture
def speak(tmp_path: Path) -> Path:
    script = tmp_path / "speak.py"
    script.write_text(SPEAK)
    return script


def run(operator: ScriptedOperator, agent: Agent) -> None:
    operator.begin("w0")
    operator.complete("w0")
    assert agent.wait() == 0


def test_output_goes_where_the_options_say(
    operator: ScriptedOperator, agents: Agents, speak: Path, tmp_path: Path, start_method: str
) -> None:
    filters = torchrun_has("--duplicate-stdout-filters")
    options = {
        "PET_START_METHOD": start_method,
        "PET_REDIRECTS": "1:3",
        "PET_TEE": "0:3",
        "PET_LOG_DIR": str(tmp_path / "logs"),
        # Not PET_LOG_LINE_PREFIX_TEMPLATE: this one, older releases know too.
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank}> ",
        "PET_ROLE": "trainer",
        **({"PET_DUPLICATE_STDOUT_FILTERS": "loss"} if filters else {}),
    }
    agent = agents("w0", speak, PET_NPROC_PER_NODE=2, **options)
    run(operator, agent)
    out, err = agent.out.read_text().splitlines(), agent.text().splitlines()
    assert out == ["<trainer 0> out of 0 loss 1", "<trainer 0> out of 0 something else"]
    assert "<trainer 0> err of 0" in err and not any("err of 1" in line for line in err)
    files = {f"{path.parent.name}/{path.name}": path for path in (tmp_path / "logs").rglob("*.log")}
    assert files["1/stdout.log"].read_text().splitlines() == [
        "out of 1 loss 1",
        "out of 1 something else",
    ]
    assert files["1/stderr.log"].read_text() == "err of 1\n"
    assert files["0/stdout.log"].read_text().startswith("out of 0")
    if filters:
        assert files["attempt_0/filtered_stdout.log"].read_text() == "<trainer 0> out of 0 loss 1\n"


@pytest.mark.skipif(
    not torchrun_has("--log-line-prefix-template"),
    reason="this torchrun has no --log-line-prefix-template",
)
def test_prefix_of_lines_has_the_rank_that_a_process_has_at_the_time(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    for worker in ("w0", "w1"):
        options = {
            "PET_TEE": "1",
            "PET_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} $rank $${rank} ${local_rank}> ",
            "ELASTIC_PYTORCH_REST_SECONDS": 60,
        }
        agents(worker, tmp_path / "rank.py", tmp_path / "finish", **options)
    operator.wait_for("ready", "w0", "w1")
    for members in (("w0", "w1"), ("w1",)):
        number = operator.declare(*members, orderly=True)
        operator.wait_for("running", *members, number=number)
        until(
            lambda members=members: (
                f"of {len(members) - 1} of {len(members)}\n" in (tmp_path / "w1.out").read_text()
            )
        )
    (tmp_path / "finish").touch()
    operator.wait_for("succeeded", "w1")
    lines = set((tmp_path / "w1.out").read_text().splitlines())
    assert lines == {"<default 1 ${rank} 0> of 1 of 2", "<default 0 ${rank} 0> of 0 of 1"}


@pytest.mark.long
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_only_some_local_ranks_are_shown(
    operator: ScriptedOperator, agents: Agents, speak: Path, start_method: str
) -> None:
    agent = agents(
        "w0", speak, PET_NPROC_PER_NODE=3, PET_START_METHOD=start_method, PET_LOCAL_RANKS_FILTER=1
    )
    run(operator, agent)
    assert agent.out.read_text().splitlines() == ["out of 1 loss 1", "out of 1 something else"]
    assert [line for line in agent.text().splitlines() if line.startswith("err of")] == ["err of 1"]


def test_stubborn_workers_are_killed_after_the_shutdown_timeout(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    agents("w0", SCRIPTS / "stubborn.py", ELASTIC_PYTORCH_GRACE_SECONDS=60, PET_SHUTDOWN_TIMEOUT=1)
    operator.begin("w0")
    events.wait(what="start")
    before = time.monotonic()
    operator.declare()
    operator.wait_for("ready", "w0")
    assert 0.9 < time.monotonic() - before < 10
    assert events.all(what="ignored")


@pytest.mark.long
def test_another_signal_ends_a_worker_in_an_orderly_way(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    agent = agents("w0", SCRIPTS / "train.py", "--save", PET_SIGNALS_TO_HANDLE="SIGTERM,SIGUSR1")
    operator.begin("w0")
    events.wait(what="step")
    agent.signal(signal.SIGUSR1)
    operator.wait_for("leaving", "w0")
    assert agent.wait() == 128 + signal.SIGUSR1
    assert events.all(what="saved", signal=signal.SIGUSR1), (
        "as from torchrun: the workers get the same signal"
    )


@pytest.mark.long
@pytest.mark.skipif(
    not torchrun_has("--virtual-local-rank"), reason="this torchrun has no --virtual-local-rank"
)
def test_virtual_local_ranks(operator: ScriptedOperator, agents: Agents, tmp_path: Path) -> None:
    (tmp_path / "virtual.py").write_text(
        "import os, sys; names = ['RANK', 'LOCAL_RANK', 'CUDA_VISIBLE_DEVICES']\n"
        "sys.stdout.write(' '.join(os.environ[name] for name in names) + '\\n')"
    )
    options = {"CUDA_VISIBLE_DEVICES": "4,5", "PET_VIRTUAL_LOCAL_RANK": 1}
    agent = agents("w0", tmp_path / "virtual.py", PET_NPROC_PER_NODE=2, **options)
    run(operator, agent)
    assert sorted(agent.out.read_text().splitlines()) == ["0 0 4", "1 0 5"]


@pytest.mark.long
def test_another_interpreter(operator: ScriptedOperator, agents: Agents, tmp_path: Path) -> None:
    python = program(tmp_path / "other-python", f'MARK=other exec {sys.executable} "$@"')
    (tmp_path / "mark.py").write_text("import os; print(os.environ.get('MARK'))")
    agent = agents("w0", tmp_path / "mark.py", PYTHON_EXEC=python)
    run(operator, agent)
    assert agent.out.read_text() == "other\n"
