"""The trials as tables, and what is not as it should be."""

from collections.abc import Iterable, Sequence
from statistics import median

from elastic_pytorch_client.reading.history import PHASE_NAMES
from measure import markdown
from rich.table import Table
from rich.text import Text

from bench.scenarios import AGAIN, SCENARIOS, Scenario
from bench.trials import Trial, phases, values

MEASURES = (
    *("trials", "trains again", "longest pause", "target", "steps repeated", "at size"),
    *("replaced", "rounds", "others\nrestarted", "failures\ncounted"),
)
HANDLER_SECONDS = 0.5  # how much later a script with a handler of SIGTERM may train again than one without


def main_table(trials: Sequence[Trial]) -> Table:
    """Returns how long each kind of fault was felt, beside its target."""
    table = _table("Median (worst), in seconds", MEASURES)
    for name, scenario in SCENARIOS.items():
        if found := of_scenario(trials, name):
            table.add_row(*_main_row(scenario, found))
    return table


def phase_table(trials: Sequence[Trial]) -> Table:
    """Returns where the time to the first new step went, as the operator has measured it."""
    table = _table("Where the time goes: median (worst), in seconds", PHASE_NAMES.values())
    for name in SCENARIOS:
        found = [phases(of_scenario(trials, name), phase) for phase in PHASE_NAMES]
        if any(found):
            table.add_row(name, *(markdown.spread(seconds, digits=2) for seconds in found))
    return table


def of_scenario(trials: Iterable[Trial], scenario: str) -> list[Trial]:
    return [trial for trial in trials if trial.kind == scenario]


def complaints(trials: Sequence[Trial]) -> list[str]:
    said = []
    for name, scenario in SCENARIOS.items():
        found = of_scenario(trials, name)
        said += [f"{name}: {trial.error}" for trial in found if trial.error]
        measured, replaced = values(found, scenario.target), values(found, "replaced")
        if measured and median(measured) > scenario.seconds:
            said.append(f"{name}: the median is {median(measured):.2f} s, the target {scenario.seconds:.1f} s")
        plain = values(of_scenario(trials, scenario.like), scenario.target)
        if measured and plain and median(measured) > median(plain) + HANDLER_SECONDS:
            said.append(f"{name}: the median is {median(measured):.2f} s, without a handler {median(plain):.2f} s")
        if scenario.replaced_seconds and replaced and median(replaced) > scenario.replaced_seconds:
            after, target = median(replaced), scenario.replaced_seconds
            said.append(f"{name}: replaced after {after:.2f} s, the target is {target:.1f} s")
        for figure, expected in (("rounds", scenario.rounds), ("restarts", 0), ("failures", 0)):
            if wrong := [f"{value:.0f}" for value in values(found, figure) if value != expected]:
                trouble = f"{', '.join(wrong)} instead of {expected} in {len(wrong)} of {len(found)} trials"
                said.append(f"{name}: {figure} {trouble}")
    return said


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table("fault", title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _main_row(scenario: Scenario, trials: Sequence[Trial]) -> list[str | Text]:
    of_again = scenario.target == AGAIN
    replaced = _against(values(trials, "replaced"), scenario.replaced_seconds)
    if scenario.replaced_seconds is not None:
        replaced.append(f"  (target {scenario.replaced_seconds:.0f})", style="dim")
    return [
        scenario.name,
        f"{len(values(trials, 'rounds'))}/{len(trials)}",
        _against(values(trials, AGAIN), scenario.seconds if of_again else None),
        _against(values(trials, "pause"), None if of_again else scenario.seconds),
        f"{'' if of_again else 'pause '}{scenario.seconds:.1f}",
        markdown.spread(values(trials, "repeated"), digits=0),
        markdown.spread(values(trials, "whole"), digits=2),
        replaced,
        _expected(values(trials, "rounds"), scenario.rounds),
        _expected(values(trials, "restarts"), 0),
        _expected(values(trials, "failures"), 0),
    ]


def _against(measured: Sequence[float], target: float | None) -> Text:
    color = ""
    if measured and target is not None:
        color = "green" if median(measured) <= target else "red"
    return Text(markdown.spread(measured, digits=2), style=color)


def _expected(found: Sequence[float], expected: int) -> Text:
    text = "  ".join(f"{value:.0f}" for value in sorted(set(found))) or markdown.NOTHING
    return Text(text, style="" if set(found) <= {expected} else "red")
