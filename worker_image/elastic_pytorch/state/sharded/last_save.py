"""Saves the last step before a stop or at the end of training."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from enum import IntEnum
from math import inf
from typing import Any

from elastic_pytorch.pod.agent_link import AgentLink
from elastic_pytorch.progress.report import has_agent
from elastic_pytorch.state.last_commits import LAST_FLUSH_SECONDS, RETRY_SECONDS, saving
from elastic_pytorch.state.sharded.shared_folder import first_does

# Less than half of a pod's usual grace period, in which a group has to stop.
STOP_SECONDS = 10.0


class Outcome(IntEnum):
    SAVED = 0
    GIVEN_UP = 1
    STOPPED = 2


def save_last(
    save: Callable[[], bool], group: Any, *, agent: AgentLink | None, stop: bool
) -> Outcome:
    """Saves a step, and retries until `save` returns True. Collective, with one outcome.

    At the end of a training the operator decides how long it may take, and ends the job.
    """
    limit = STOP_SECONDS if stop else inf if has_agent() else LAST_FLUSH_SECONDS
    deadline = time.monotonic() + limit

    def decide() -> int:
        if not stop and agent is not None and agent.wanted():
            return Outcome.STOPPED
        return Outcome.GIVEN_UP if time.monotonic() >= deadline else Outcome.SAVED

    with nullcontext() if stop else saving():
        while not (outcome := first_does(decide, group)):
            if save():
                break
            time.sleep(RETRY_SECONDS)
    return Outcome(outcome)
