"""What a real operator reads of the failure that an agent tells of. Needs the operator's Python."""

from typing import Any

from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.model.observed import Failure

from tests.worker_image.agents import Agents
from tests.worker_image.scripted_operator import ScriptedOperator


def run_until_failure(
    operator: ScriptedOperator,
    agents: Agents,
    *arguments: str,
    start_method: str,
    **environment: Any,
) -> Failure:
    """Runs train.py on one worker of two processes until they fail."""
    agents(
        "w0",
        "--nproc-per-node=2",
        f"--start-method={start_method}",
        "train.py",
        *arguments,
        **environment,
    )
    operator.begin("w0")
    operator.wait_for("failed", "w0")
    heard = operator.last("w0")
    failure = parse_heartbeat("w0", heard.body, 0.0).failure
    assert failure is not None
    return failure
