"""The table of a run in Markdown, and what is not as it should be. Pure."""

from collections.abc import Mapping, Sequence

from bench.trials import Trial, values
from measure import markdown

from kubeflow.jobs import JOBS
from kubeflow.losses import KINDS

HEAD = ("what happens", "job", "longest pause", "stands still in all", "until 3 train again", "steps repeated", "trials")


def table(trials: Sequence[Trial], about: Mapping[str, str]) -> str:
    """A row for each kind and job that was tried: medians, with the worst in brackets; times in seconds.

    Args:
        about: what was measured with what: texts by their names.
    """
    rows = []
    for kind in KINDS.values():
        tried = {name: [trial for trial in trials if (trial.kind, trial.job) == (kind.name, name)] for name in JOBS}
        rows += [[kind.title, JOBS[name].title, *_cells(found)] for name, found in tried.items() if found]
    measured = ", ".join(f"{name} {value}" for name, value in about.items())
    return f"{markdown.table(HEAD, rows)}\nMeasured with {measured}."


def complaints(trials: Sequence[Trial]) -> list[str]:
    return [f"{trial.job}, {trial.kind}, at {trial.when}: {trial.error}" for trial in trials if trial.error]


def _cells(trials: Sequence[Trial]) -> list[str]:
    found = [trial for trial in trials if trial.cost]
    made = f"{len(found)}" if len(found) == len(trials) else f"{len(found)} of {len(trials)}"
    times = [markdown.spread(values(found, name)) for name in ("pause", "stopped", "whole")]
    return [*times, markdown.spread(values(found, "repeated"), digits=0), made]
