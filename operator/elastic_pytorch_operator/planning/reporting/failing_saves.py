"""Whether checkpoints of a training fail again and again: the group trains on, and would lose much with its pods."""

from collections.abc import Iterable
from dataclasses import replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round

TOLD_FROM = (
    3,
    10,
    30,
    100,
    300,
    1000,
)  # failed saves in a row: a number that grew with each would be a write of the status each time


def explain_failing_saves(agents: Iterable[AgentView]) -> str:
    """Returns which worker of a group cannot save checkpoints, how often, and why; empty: none reports that."""
    failing = [each for each in agents if each.state is AgentState.RUNNING and each.progress.failed_saves >= TOLD_FROM[0]]
    if not failing:
        return ""
    worst = max(failing, key=lambda each: (each.progress.failed_saves, each.worker))
    least = max(count for count in TOLD_FROM if count <= worst.progress.failed_saves)
    return f"at least {least} saves of a checkpoint in a row have failed in {worst.worker}: {worst.progress.save_error}"


def with_failing_saves(degraded: Condition, observed: Observed, round_: Round | None) -> Condition:
    """Returns the condition Degraded with what `explain_failing_saves` says. One that is true already keeps its reason.

    Args:
        degraded: as it is without that.
        observed: what is known.
        round_: of the group; None: nothing trains.
    """
    members = [observed.agents[name] for name in round_.ranks if name in observed.agents] if round_ else []
    if not (failing := explain_failing_saves(members)):
        return degraded
    if degraded.true:
        return replace(degraded, message=f"{degraded.message}; {failing}")
    return Condition(names.DEGRADED, True, names.CHECKPOINTS_FAILING, failing)
