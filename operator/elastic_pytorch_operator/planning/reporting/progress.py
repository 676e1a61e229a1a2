"""`status.progress`: how far the training is, as its script reports it."""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.model.observed import MAX_METRICS, AgentView, Progress


def describe_progress(agents: Sequence[AgentView], old: Mapping[str, Any]) -> dict[str, Any]:
    """The field; empty: the script has never reported a step.

    Args:
        old: stays while nothing is reported, as after a change of the group.
    """
    reports = [agent.progress for agent in agents if agent.progress.step is not None]
    if not reports:
        return dict(old)
    newest_first = sorted(reports, key=lambda progress: -(progress.step or 0))
    newest = newest_first[0]
    speed = max((agent.steps_per_second for agent in agents if agent.steps_per_second is not None), default=None)
    checkpoints = [a.progress.checkpoint_step for a in agents if a.progress.checkpoint_step is not None]
    found: dict[str, Any] = {"summary": f"{newest.step}", "step": newest.step}
    if newest.total is not None:
        found |= {"summary": f"{newest.step}/{newest.total}", "total": newest.total}
    if newest.loss is not None:
        found["loss"] = f"{newest.loss:.4g}"
    if metrics := _metrics(newest_first, old.get("metrics") or {}):
        found["metrics"] = metrics
    if speed is not None:
        found["stepsPerSecond"] = f"{speed:.3g}"
    if checkpoints:
        found["checkpointStep"] = max(checkpoints)
    return found


def _metrics(newest_first: Sequence[Progress], old: Mapping[str, str]) -> dict[str, str]:
    """The newest value of each metric, by name. Those of the group come before those that only the status tells."""
    known: dict[str, str] = {}
    for progress in newest_first:
        for name, value in progress.metrics:
            known.setdefault(name, f"{value:.6g}")
    for name, text in old.items():
        known.setdefault(name, text)
    return {name: known[name] for name in sorted(list(known)[:MAX_METRICS])}
