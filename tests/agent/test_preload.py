"""Modules that ELASTIC_PYTORCH_PRELOAD names: the GPUs of workers stay usable whatever they do when they are imported."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from agent.agents import SCRIPTS, Agent, Events
from agent.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

Start = Callable[..., Agent]

FOUND = f"""
import os, sys; sys.path.insert(0, {str(SCRIPTS)!r})
from events import event
import torch
event("found", bad_fork=torch.cuda._is_in_bad_fork(), nvml=os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"), preloaded="preloaded" in sys.modules)
"""


def found_by_a_worker(
    operator: ScriptedOperator, agents: Start, events: Events, tmp_path: Path, preloaded: str
) -> tuple[Agent, dict[str, object]]:
    (tmp_path / "preloaded.py").write_text(preloaded)
    (tmp_path / "found.py").write_text(FOUND)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    agent = agents("w0", tmp_path / "found.py", ELASTIC_PYTORCH_PRELOAD="preloaded", PYTHONPATH=path)
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    [found] = events.wait(what="found")
    return agent, found


@pytest.mark.skipif(not hasattr(torch._C, "_cuda_isInBadFork"), reason="this torch is built without CUDA")
def test_module_that_touches_the_gpus_costs_the_warm_start_and_not_the_gpus(
    operator: ScriptedOperator, agents: Start, events: Events, tmp_path: Path
) -> None:
    agent, found = found_by_a_worker(operator, agents, events, tmp_path, "import torch; torch._C._cuda_getDeviceCount()")
    assert (found["bad_fork"], found["preloaded"]) == (False, False)
    assert "has asked CUDA for devices" in agent.text()


def test_question_for_gpus_is_answered_without_cuda_while_modules_are_imported(
    operator: ScriptedOperator, agents: Start, events: Events, tmp_path: Path
) -> None:
    question = "import os, sys; print('ASKED', os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'], file=sys.stderr)"
    agent, found = found_by_a_worker(operator, agents, events, tmp_path, question)
    assert "ASKED 1" in agent.text()
    assert (found["bad_fork"], found["preloaded"], found["nvml"]) == (False, True, None), "the script's is the pod's own"
