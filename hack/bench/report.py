"""The trials as a table, and their complaints. Pure."""

from collections.abc import Iterable, Sequence
from statistics import median

from measure import markdown

from bench.scenarios import AGAIN, SCENARIOS
from bench.trials import Trial, values

HEAD = (
    "fault",
    "trains again",
    "longest pause",
    "at size",
    "steps repeated",
    "another pod made",
    "trials",
)
# By which a script with a handler of SIGTERM may train later than one without.
HANDLER_SECONDS = 0.5


def table(trials: Sequence[Trial]) -> str:
    rows = []
    for name in SCENARIOS:
        if found := of_scenario(trials, name):
            again, pause, whole, made = (
                markdown.spread(values(found, of)) for of in (AGAIN, "pause", "whole", "replaced")
            )
            repeated = markdown.spread(values(found, "repeated"), digits=0)
            count = len(values(found, "rounds"))
            rows.append([name, again, pause, whole, repeated, made, f"{count}/{len(found)}"])
    return markdown.table(HEAD, rows)


def of_scenario(trials: Iterable[Trial], scenario: str) -> list[Trial]:
    return [trial for trial in trials if trial.kind == scenario]


def complaints(trials: Sequence[Trial]) -> list[str]:
    said = []
    for name, scenario in SCENARIOS.items():
        found = of_scenario(trials, name)
        said += [f"{name}: {trial.error}" for trial in found if trial.error]
        measured, replaced = values(found, scenario.target), values(found, "replaced")
        typical = median(measured) if measured else 0.0
        said_of = f"{name}: the median is {typical:.2f} s"
        if typical > scenario.seconds:
            said.append(f"{said_of}, the target {scenario.seconds:.1f} s")
        plain = values(of_scenario(trials, scenario.like), scenario.target)
        if plain and typical > median(plain) + HANDLER_SECONDS:
            said.append(f"{said_of}, without a handler {median(plain):.2f} s")
        if scenario.replaced_seconds and replaced and median(replaced) > scenario.replaced_seconds:
            after, target = median(replaced), scenario.replaced_seconds
            said.append(f"{name}: replaced after {after:.2f} s, the target is {target:.1f} s")
        for figure, expected in (("rounds", scenario.rounds), ("restarts", 0), ("failures", 0)):
            if wrong := [f"{value:.0f}" for value in values(found, figure) if value != expected]:
                counted = f"in {len(wrong)} of {len(found)} trials"
                said.append(f"{name}: {figure} {', '.join(wrong)} instead of {expected} {counted}")
    return said
