"""Agents of tests start in milliseconds, whatever other tests have imported."""

import pytest

from tests.worker_image.agents import Agents
from tests.worker_image.warm_python import ForkedProcess

pytestmark = pytest.mark.process


def test_variable_that_an_imported_module_sets_keeps_no_agent_from_being_forked(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # as Lightning does
    agent = agents("w0", "--rdzv-backend=c10d", "train.py")
    assert isinstance(agent.process, ForkedProcess)
    assert agent.wait() == 2
