"""The table of a run in Markdown, and what is not as it should be. Pure."""

from collections.abc import Sequence

from measure import markdown

from kubeflow.jobs import JOBS
from kubeflow.losses import KINDS
from kubeflow.results import Run, Trial

HEAD = ("what happens", "job", "longest pause", "stands still in all", "until 3 train again", "steps repeated", "trials")


def table(run: Run) -> str:
    """A row for each kind and job that was tried: medians, with the worst in brackets; times in seconds."""
    rows = []
    for kind in KINDS.values():
        tried = {name: [trial for trial in run.trials if (trial.kind, trial.job) == (kind.name, name)] for name in JOBS}
        rows += [[kind.title, JOBS[name].title, *_cells(trials)] for name, trials in tried.items() if trials]
    about = ", ".join(f"{name} {value}" for name, value in run.about.items())
    return "\n".join([markdown.table(HEAD, rows), f"Measured with {about}.", *([run.left_out] if run.left_out else [])])


def complaints(run: Run) -> list[str]:
    """Trials that have failed, in sentences."""
    return [f"{trial.job}, {trial.kind}, at {trial.when}: {trial.error}" for trial in run.trials if trial.error]


def describe(trial: Trial) -> str:
    """A trial in a line, for the terminal."""
    found = trial.figures
    if not found:
        return f"FAILED: {trial.error}"
    times = f"paused {found.pause:.2f} s, stood still {found.stopped:.2f} s, whole after {found.whole:.2f} s"
    return f"{times}, repeated {found.repeated} steps" + (f" ({trial.pod})" if trial.pod else "")


def _cells(trials: Sequence[Trial]) -> list[str]:
    found = [trial.figures for trial in trials if trial.figures]
    made = f"{len(found)}" if len(found) == len(trials) else f"{len(found)} of {len(trials)}"
    times = [markdown.spread([getattr(each, name) for each in found]) for name in ("pause", "stopped", "whole")]
    return [*times, markdown.spread([each.repeated for each in found], digits=0), made]
