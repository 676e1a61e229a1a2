"""GPUs stay usable for workers, whatever ELASTIC_PYTORCH_PRELOAD's modules do on import."""

from pathlib import Path

import pytest
import torch

from tests.worker_image.agents import SCRIPTS, Agent, Agents, Events, python_path
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


FOUND = f"""
import os, sys; sys.path.insert(0, {str(SCRIPTS)!r})
from events import event
import torch
nvml = os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
bad_fork, preloaded = torch.cuda._is_in_bad_fork(), "preloaded" in sys.modules
event("found", bad_fork=bad_fork, nvml=nvml, preloaded=preloaded)
"""


def found_by_a_worker(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path, preloaded: str
) -> tuple[Agent, dict[str, object]]:
    (tmp_path / "preloaded.py").write_text(preloaded)
    (tmp_path / "found.py").write_text(FOUND)
    path = python_path(tmp_path)
    agent = agents(
        "w0", tmp_path / "found.py", ELASTIC_PYTORCH_PRELOAD="preloaded", PYTHONPATH=path
    )
    operator.begin("w0")
    [found] = events.wait(what="found")
    return agent, found


@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(torch._C, "_cuda_isInBadFork"), reason="this torch is built without CUDA"
)
def test_module_that_touches_the_gpus_costs_the_warm_start_and_not_the_gpus(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    agent, found = found_by_a_worker(
        operator, agents, events, tmp_path, "import torch; torch._C._cuda_getDeviceCount()"
    )
    assert (found["bad_fork"], found["preloaded"]) == (False, False)
    assert "has asked CUDA for devices" in agent.text()


@pytest.mark.long
def test_question_for_gpus_is_answered_without_cuda_while_modules_are_imported(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    question = (
        "import os, sys; print('ASKED', os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'], "
        "file=sys.stderr)"
    )
    agent, found = found_by_a_worker(operator, agents, events, tmp_path, question)
    assert "ASKED 1" in agent.text()
    assert (found["bad_fork"], found["preloaded"], found["nvml"]) == (False, True, None), (
        "the script's is the pod's own"
    )


def test_sigterm_amid_the_start_of_workers_is_told_and_stops_them(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    """A preloaded module sends it after torch's handlers are installed, before the start."""
    (tmp_path / "preloaded.py").write_text(
        "import os, signal\n"
        "from torch.distributed.elastic.multiprocessing import api\n"
        "stock = api.MultiprocessContext._start\n"
        "def start(context):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    stock(context)\n"
        "api.MultiprocessContext._start = start\n"
    )
    path = python_path(tmp_path)
    agent = agents(
        "w0", SCRIPTS / "train.py", "--save", ELASTIC_PYTORCH_PRELOAD="preloaded", PYTHONPATH=path
    )
    operator.begin("w0")
    operator.wait(lambda: any(heard.state == "leaving" for heard in operator.heard))
    assert agent.wait() == 143
    assert "workers started" in agent.text(), "the start was not broken off"
