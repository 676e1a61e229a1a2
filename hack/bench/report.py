"""The trials as a table, and their complaints. Pure."""

from collections.abc import Sequence
from statistics import median

from measure import markdown

from bench.scenarios import AGAIN, SCENARIOS
from bench.trials import Trial, cells, values

HEAD = ("fault", "trains again", "longest pause", "at size", "steps repeated", "trials")
FIGURES = (AGAIN, "pause", "whole")


def table(trials: Sequence[Trial]) -> str:
    tried = _by_scenario(trials).items()
    return markdown.table(HEAD, [[name, *cells(found, FIGURES)] for name, found in tried if found])


def complaints(trials: Sequence[Trial]) -> list[str]:
    said = []
    for name, found in _by_scenario(trials).items():
        scenario = SCENARIOS[name]
        said += [f"{name}: {trial.error}" for trial in found if trial.error]
        for words, figure, target in (
            ("the median is", scenario.target, scenario.seconds),
            ("back at size after", "whole", scenario.whole_seconds),
        ):
            typical = median(values(found, figure) or [0.0])
            if typical > target:
                said.append(f"{name}: {words} {typical:.2f} s, the target is {target:.1f} s")
        for figure, expected in (("rounds", scenario.rounds), ("restarts", 0), ("failures", 0)):
            if wrong := [f"{value:.0f}" for value in values(found, figure) if value != expected]:
                counted = f"in {len(wrong)} of {len(found)} trials"
                said.append(f"{name}: {figure} {', '.join(wrong)} instead of {expected} {counted}")
    return said


def _by_scenario(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    return {name: [trial for trial in trials if trial.kind == name] for name in SCENARIOS}
