import os
import signal
import sys
from pathlib import Path

import pytest
from elastic_pytorch.processes.run_script import SAME_SEED

from tests.torch_features import needs_torchrun_handlers
from tests.waiting import until
from tests.worker_image.agents import JOINING, NEW_AGENT, SCRIPTS, Agents, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


def test_workers_have_torchruns_environment(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    """Warm on one pod, cold on the other: the same."""
    limits = 'ulimit -Sn 500 && ulimit -Hn 2000 && exec "$@"'
    script = SCRIPTS / "env.py"
    options = ["--nproc-per-node=2", "--max-restarts=3", "--role", "trainer"]
    warm = agents(
        "w0",
        *(*options, script, "${local_rank}", "a b"),
        command=["sh", "-c", limits, "sh", *NEW_AGENT],
        OMP_NUM_THREADS=None,
    )
    options = ["--nproc_per_node", 2, "--max-restarts=3", "--role=trainer", "--start-method=spawn"]
    cold = agents("w1", *options, script, 1, "a b")
    operator.begin("w0", "w1")
    found = events.wait(4, what="env")
    port = str(operator.round["store"]["port"])
    for event in found:
        rank, local_rank, pod = event["RANK"], event["RANK"] % 2, event["RANK"] // 2
        env = event["env"]
        assert env.pop("TORCHELASTIC_ERROR_FILE").endswith(f"/{local_rank}/error.json")
        assert env == {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "GROUP_RANK": str(pod),
            "ROLE_RANK": str(rank),
            "ROLE_NAME": "trainer",
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_WORLD_SIZE": "2",
            "ROLE_WORLD_SIZE": "4",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "3",
            "TORCHELASTIC_RUN_ID": "uid-of-job",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "OMP_NUM_THREADS": "1",
            "ELASTIC_PYTORCH_UNIT": str(pod),
            "ELASTIC_PYTORCH_UNITS": "2",
            "ELASTIC_PYTORCH_UNIT_RANK": str(local_rank),
        }
        assert event["argv"] == [str(script), str(local_rank) if pod == 0 else "1", "a b"]
        assert event["torch"] == (pod == 0)
        assert event["files"][0] == (2000 if pod == 0 else event["files"][1])
    assert warm.process.poll() is None
    assert cold.process.poll() is None


def test_one_of_two_local_workers_fails(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    script = tmp_path / "half.py"
    script.write_text(
        "import os, time\nif os.environ['LOCAL_RANK'] == '1':\n    os.abort()\ntime.sleep(600)\n"
    )
    agents("w0", "--nproc-per-node=2", "--redirects=2", "--log-dir", tmp_path / "logs", script)
    operator.wait_for("ready", "w0")
    for restarts in range(2):
        number = operator.declare("w0")
        operator.wait_for("failed", "w0", number=number)
        heard = operator.last("w0")
        failure = heard.failure
        assert (failure["rank"], failure["signal"]) == (1, "SIGABRT")
        # What faulthandler wrote to the redirected stderr.
        assert "half.py" in failure["traceback"]
        assert heard.restarts == restarts


def test_data_loaders_and_random_numbers(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    agents("w0", SCRIPTS / "loader.py", PET_NPROC_PER_NODE=2, OMP_NUM_THREADS=None)
    operator.begin("w0")
    operator.wait_for("succeeded", "w0")
    assert [e["sums"] for e in events.all(what="batches")] == [[14, 126]] * 4
    random = events.all(what="random")
    assert len({e["numpy"] for e in random}) == 2
    seeds = {e["seed"] for e in random}
    assert len(seeds) == 2 or seeds == {SAME_SEED}, "as in processes that are not forked"
    assert {(e["threads"], e["omp"]) for e in random} == {(1, "1")}


def test_programs_and_modules(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    (tmp_path / "events.py").write_text((SCRIPTS / "events.py").read_text())
    (tmp_path / "train.py").write_text((SCRIPTS / "env.py").read_text())
    agents("w0", "--no-python", sys.executable, SCRIPTS / "env.py", "exit")
    agents("w1", "-m", "train", "exit")
    agents("w2", "--no-python", tmp_path / "nothing")
    operator.begin("w0", "w1", "w2")
    operator.wait_for("succeeded", "w0", "w1")
    operator.wait_for("failed", "w2")
    assert {(e["worker"], Path(e["argv"][0]).name) for e in events.all(what="env")} == {
        ("w0", "env.py"),
        ("w1", "train.py"),
    }
    assert str(tmp_path / "nothing") in operator.last("w2").failure["message"]


@needs_torchrun_handlers
def test_plain_torchrun_takes_part(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    finish = tmp_path / "finish"
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    plain = {**JOINING, "PET_RDZV_ID": "uid-of-job"}
    arguments = (SCRIPTS / "train.py", "--finish", finish)
    both = [agents("w0", *arguments, command=torchrun, **plain), agents("w1", *arguments)]
    operator.wait_for("ready", "w0", "w1")
    operator.declare("w0")
    events.wait(what="step", step=3, world=1)
    operator.declare("w1", "w0")
    steps = events.wait(2, what="step", step=3, world=2)
    os.kill(next(e["pid"] for e in steps if e["worker"] == "w0"), signal.SIGKILL)
    operator.wait_for("failed", "w0", "w1")
    number = operator.declare("w0", "w1")
    operator.wait_for("running", "w0", "w1", number=number)
    finish.touch()
    operator.complete("w0", "w1")
    assert [agent.wait() for agent in both] == [0, 0]


def test_first_worker_has_imported_what_its_first_steps_need(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    """Nothing is left for later that a restart would have to wait for.

    The folder of torch.compile is the script's to choose.
    """
    script = tmp_path / "imported.py"
    script.write_text(
        "import os, sys\nprint('IMPORTED', 'torch._dynamo' in sys.modules, file=sys.stderr)\n"
        "print('CACHE', os.environ.setdefault('TORCHINDUCTOR_CACHE_DIR', 'of the script'), "
        "file=sys.stderr)\n"
    )
    both = [agents("w0", script), agents("w1", script, TORCHINDUCTOR_CACHE_DIR="of the pod")]
    operator.begin("w0", "w1")
    operator.wait_for("succeeded", "w0", "w1")
    for agent, folder in zip(both, ("of the script", "of the pod"), strict=True):
        until(
            lambda agent=agent, folder=folder: (
                "IMPORTED True" in agent.text() and f"CACHE {folder}\n" in agent.text()
            )
        )
    operator.end("complete")
    assert [agent.wait() for agent in both] == [0, 0]
    assert not any("nanobind" in agent.text() for agent in both), (
        "triton complains of objects that outlive the interpreter"
    )
