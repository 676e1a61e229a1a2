"""The results as tables."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from bench.results import Result, Spread, of_scenario, spread, values
from bench.scenarios import AGAIN, SCENARIOS, Scenario

MEASURES = (
    *("trials", "trains again", "pause", "target", "steps lost", "at size"),
    *("replaced", "rounds", "others\nrestarted", "failures\ncounted"),
)
PHASES = {
    "detect": "fault to\nround declared",
    "start": "to all workers\nstarted",
    "init": "to rank 0\nin its group",
    "first_step": "to its\nfirst step",
}
TIMES = {"trains again": AGAIN, "pause": "pause", "at size": "whole", "pod made": "replaced"}
NOTHING = "-"
HANDLER_SECONDS = 0.5  # how much later a script with a handler of SIGTERM may train again than one without


def main_table(results: Sequence[Result]) -> Table:
    """Returns how long each kind of fault was felt, beside its target."""
    table = _table("Median and worst, in seconds", MEASURES)
    for name, scenario in SCENARIOS.items():
        if found := of_scenario(results, name):
            table.add_row(*_main_row(scenario, found))
    return table


def phase_table(results: Sequence[Result]) -> Table:
    """Returns where the time to the first new step went."""
    table = _table("Where the time goes: median (worst), in seconds", PHASES.values())
    for name in SCENARIOS:
        spreads = [spread(of_scenario(results, name), phase) for phase in PHASES]
        if any(spreads):
            table.add_row(name, *(f"{s.median:.2f} ({s.worst:.2f})" if s else NOTHING for s in spreads))
    return table


def complaints(results: Sequence[Result]) -> list[str]:
    """Returns what is not as it should be, in sentences."""
    said = []
    for name, scenario in SCENARIOS.items():
        found = of_scenario(results, name)
        said += [f"{name}: {result.error}" for result in found if result.error]
        measured, replaced = spread(found, scenario.target), spread(found, "replaced")
        if measured and measured.median > scenario.seconds:
            said.append(f"{name}: the median is {measured.median:.2f} s, the target {scenario.seconds:.1f} s")
        plain = spread(of_scenario(results, scenario.like), scenario.target)
        if measured and plain and measured.median > plain.median + HANDLER_SECONDS:
            said.append(f"{name}: the median is {measured.median:.2f} s, without a handler {plain.median:.2f} s")
        if scenario.replaced_seconds and replaced and replaced.median > scenario.replaced_seconds:
            said.append(f"{name}: replaced after {replaced.median:.2f} s, the target is {scenario.replaced_seconds:.1f} s")
        for figure, expected in (("rounds", scenario.rounds), ("restarts", 0), ("failures", 0)):
            if wrong := [f"{value:.0f}" for value in values(found, figure) if value != expected]:
                said.append(f"{name}: {figure} {', '.join(wrong)} instead of {expected} in {len(wrong)} of {len(found)} trials")
    return said


def describe(result: Result) -> str:
    figures = result.figures
    if figures is None:
        return f"FAILED: {result.error}"
    times = {"longest gap": "longest_gap"} if SCENARIOS[result.scenario].target == "longest_gap" else TIMES
    told = [f"{label} {value:.2f} s" for label, name in times.items() if (value := getattr(figures, name)) is not None]
    told += [f"{_counted(figures.steps_lost, 'step')} lost"] if figures.steps_lost is not None else []
    told += [_counted(figures.rounds, "round")]
    told += [f"{figures.restarts} healthy pods restarted"] if figures.restarts else []
    told += [f"{figures.failures} failures counted"] if figures.failures else []
    return ", ".join(told)


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table("fault", title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _main_row(scenario: Scenario, results: Sequence[Result]) -> list[str | Text]:
    again, pause = spread(results, AGAIN), spread(results, "pause")
    if scenario.target == "longest_gap":  # there is no new group: what counts is that nothing was felt
        again, pause = None, spread(results, "longest_gap")
    of_again = scenario.target == AGAIN
    replaced = _against(spread(results, "replaced"), scenario.replaced_seconds)
    if scenario.replaced_seconds is not None:
        replaced.append(f"  (target {scenario.replaced_seconds:.0f})", style="dim")
    return [
        scenario.name,
        f"{len(values(results, 'rounds'))}/{len(results)}",
        _against(again, scenario.seconds if of_again else None),
        _against(pause, None if of_again else scenario.seconds),
        f"{'' if of_again else 'pause '}{scenario.seconds:.1f}",
        _against(spread(results, "steps_lost"), None, digits=0),
        _against(spread(results, "whole") if scenario.rounds else None, None),
        replaced,
        _expected(values(results, "rounds"), scenario.rounds),
        _expected(values(results, "restarts"), 0),
        _expected(values(results, "failures"), 0),
    ]


def _against(measured: Spread | None, target: float | None, *, digits: int = 2) -> Text:
    if measured is None:
        return Text(NOTHING)
    color = "" if target is None else "green" if measured.median <= target else "red"
    return Text(f"{measured.median:.{digits}f}  {measured.worst:.{digits}f}", style=color)


def _expected(found: Sequence[float], expected: int) -> Text:
    text = "  ".join(f"{value:.0f}" for value in sorted(set(found))) or NOTHING
    return Text(text, style="" if set(found) <= {expected} else "red")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
