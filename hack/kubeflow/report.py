"""The tables of a run in Markdown, and its complaints. Pure."""

from collections.abc import Mapping, Sequence

from bench.trials import Trial, cells
from measure import markdown

from kubeflow.jobs import JOBS, KINDS
from kubeflow.replay import Share

HEAD = (
    "what happens",
    "job",
    "longest pause",
    "stands still in all",
    "until 3 train again",
    "steps repeated",
    "trials",
)
FIGURES = ("pause", "stopped", "whole")
SHARES_HEAD = ("job", "share of the time", "an event costs, s")


def table(trials: Sequence[Trial], about: Mapping[str, str]) -> str:
    rows = []
    for kind in KINDS.values():
        for job in JOBS.values():
            tried = [trial for trial in trials if (trial.kind, trial.job) == (kind.name, job.name)]
            if tried:
                rows.append([kind.title, job.title, *cells(tried, FIGURES)])
    return _measured(HEAD, rows, about)


def shares_table(shares: Mapping[str, Share], about: Mapping[str, str]) -> str:
    titles = ((JOBS[job].title, each) for job, each in shares.items())
    rows = [[title, f"{each.ratio:.1%}", markdown.spread(each.costs)] for title, each in titles]
    return _measured(SHARES_HEAD, rows, about)


def _measured(head: Sequence[str], rows: Sequence[Sequence[str]], about: Mapping[str, str]) -> str:
    measured = ", ".join(f"{name} {value}" for name, value in about.items())
    return f"{markdown.table(head, rows)}\nMeasured with {measured}."


def complaints(trials: Sequence[Trial]) -> list[str]:
    return [f"{each.job}, {each.kind}: {each.error}" for each in trials if each.error]
