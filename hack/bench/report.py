"""The trials as a table, and their complaints. Pure."""

from collections.abc import Iterable, Sequence
from statistics import median

from measure import markdown

from bench.scenarios import AGAIN, SCENARIOS
from bench.trials import Trial, cells, values

HEAD = (
    "fault",
    "trains again",
    "longest pause",
    "at size",
    "another pod made",
    "steps repeated",
    "trials",
)


def table(trials: Sequence[Trial]) -> str:
    tried = {name: of_scenario(trials, name) for name in SCENARIOS}
    figures = (AGAIN, "pause", "whole", "replaced")
    rows = [[name, *cells(found, figures)] for name, found in tried.items() if found]
    return markdown.table(HEAD, rows)


def of_scenario(trials: Iterable[Trial], scenario: str) -> list[Trial]:
    return [trial for trial in trials if trial.kind == scenario]


def complaints(trials: Sequence[Trial]) -> list[str]:
    said = []
    for name, scenario in SCENARIOS.items():
        found = of_scenario(trials, name)
        said += [f"{name}: {trial.error}" for trial in found if trial.error]
        for words, figure, target in (
            ("the median is", scenario.target, scenario.seconds),
            ("replaced after", "replaced", scenario.replaced_seconds),
        ):
            typical = median(values(found, figure) or [0.0])
            if typical > target:
                said.append(f"{name}: {words} {typical:.2f} s, the target is {target:.1f} s")
        for figure, expected in (("rounds", scenario.rounds), ("restarts", 0), ("failures", 0)):
            if wrong := [f"{value:.0f}" for value in values(found, figure) if value != expected]:
                counted = f"in {len(wrong)} of {len(found)} trials"
                said.append(f"{name}: {figure} {', '.join(wrong)} instead of {expected} {counted}")
    return said
