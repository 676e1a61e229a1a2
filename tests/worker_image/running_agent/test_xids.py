"""Xids that the driver reports to an agent while its workers train: a stand-in for NVIDIA's library, in real agents."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.torch_features import needs_torchrun_handlers
from tests.worker_image.agents import Agent
from tests.worker_image.fake_nvml import FakeNvml, needs_compiler
from tests.worker_image.scripted_operator import ScriptedOperator

Start = Callable[..., Agent]

pytestmark = [pytest.mark.torch, pytest.mark.process, needs_compiler]

OFF_THE_BUS = "GPU 1 reported Xid 79: the GPU has fallen off the bus"
FAILS_WHEN_TOLD = """
import sys, time
from pathlib import Path
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
raise RuntimeError("CUDA error: unspecified launch failure")
"""


class Told:
    """A worker that fails when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.nvml = FakeNvml(directory / "driver")
        self.script, self.signal = directory / "train.py", directory / "fail"
        self.script.write_text(FAILS_WHEN_TOLD)

    def failure(self, operator: ScriptedOperator) -> dict[str, Any]:
        self.signal.touch()
        operator.wait_for("failed", "w0")
        heard = operator.last("w0")
        assert heard is not None
        found: dict[str, Any] = heard.failure
        return found


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def device_fault(operator: ScriptedOperator) -> str:
    heard = operator.last("w0")
    return str(heard.deviceFault) if heard else ""


def test_broken_device_is_reported_while_its_worker_trains_and_then_explains_its_failure(
    operator: ScriptedOperator, agents: Start, told: Told
) -> None:
    agents("w0", told.script, told.signal, **told.nvml.environment)
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    operator.wait_for("running", "w0")
    assert not device_fault(operator)
    told.nvml.report("0 63", "1 79")
    operator.wait(lambda: device_fault(operator))
    assert (device_fault(operator), operator.states("w0")[-1]) == (OFF_THE_BUS, "running")
    failure = told.failure(operator)
    assert failure["exception"] == "DeviceFault"
    assert failure["message"] == f"a device has failed ({OFF_THE_BUS}): RuntimeError: CUDA error: unspecified launch failure"


def test_xid_of_a_script_is_named_and_nothing_more(operator: ScriptedOperator, agents: Start, told: Told) -> None:
    agent = agents("w0", told.script, told.signal, **told.nvml.environment)
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    operator.wait_for("running", "w0")
    told.nvml.report("1 31")
    operator.wait(lambda: "GPU 1 reported Xid 31: GPU memory page fault (GPU-1111)" in agent.text())
    failure = told.failure(operator)
    assert (failure["exception"], device_fault(operator)) == ("RuntimeError", "")
    assert failure["message"].endswith("unspecified launch failure\nGPU 1 reported Xid 31: GPU memory page fault")


@needs_torchrun_handlers
def test_torchrun_of_the_users_own_reports_a_broken_device(operator: ScriptedOperator, agents: Start, told: Told) -> None:
    joining = {"PET_RDZV_BACKEND": "elastic-pytorch", "PET_NNODES": "1:4"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--max-restarts=0", str(told.script), str(told.signal)]
    agents("w0", shlex.join(torchrun), command=["bash", "-c"], **joining, **told.nvml.environment)
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    operator.wait_for("running", "w0")
    told.nvml.report("1 79")
    operator.wait(lambda: device_fault(operator) == OFF_THE_BUS)
    failure = told.failure(operator)
    assert (failure["exception"], OFF_THE_BUS in failure["message"]) == ("DeviceFault", True)
