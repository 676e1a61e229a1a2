"""A State's reports of its steps to the operator."""

import time
from typing import Any

import torch

from elastic_pytorch.log import logger
from elastic_pytorch.pod import agent_link
from elastic_pytorch.progress.report import report, report_failed_saves
from elastic_pytorch.state.commit_interval import CommitInterval
from elastic_pytorch.state.last_commits import last_commits

REPORT_SECONDS = 0.1  # between two reports of more than the step: reading a loss may wait for a GPU


class StepReports:
    def __init__(self, name: str, interval: CommitInterval) -> None:
        self._name, self._interval = name, interval
        self._reported_at, self._reported_interval = float("-inf"), interval.steps
        self._trouble = ""

    def end_step(self, step: int, total: int | None, loss: Any, *, rank: int) -> None:
        """Reports a step, of `total` if that is known."""
        moment = time.monotonic()
        if moment - self._reported_at < REPORT_SECONDS and step != total:
            report(step=step)
            return
        self._reported_at, flushed = moment, None
        if self._name in last_commits:
            flushed = agent_link.pod_client().flushed(self._name)
            self.report_failed_writes()
        loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        report(step=step, total=total, loss=loss, checkpoint_step=flushed.step if flushed else None)
        if rank == 0 and self._interval.steps != self._reported_interval:
            self._reported_interval = self._interval.steps
            logger.info("%s", self._interval)

    def report_failed_writes(self) -> None:
        client = agent_link.pod_client()
        trouble = client.trouble(self._name)
        if failed := client.failed_flushes(self._name):
            report_failed_saves(failed, trouble)
        if trouble and trouble != self._trouble:
            logger.warning("no checkpoint: %s; training goes on", trouble)
        self._trouble = trouble
