"""The results as tables."""

from collections.abc import Sequence

from results import Result, Spread, of_scenario, spread, values
from rich.table import Table
from rich.text import Text
from scenarios import SCENARIOS, Scenario

PHASES = ("detect", "start", "init", "first_step")
MEASURES = (
    "trains again",
    "pause",
    "target",
    "steps lost",
    "at size",
    "replaced",
    "rounds",
    "others\nrestarted",
    "failures\ncounted",
)
PARTS = ("fault to\nround declared", "to all workers\nstarted", "to rank 0\nin its group", "to its\nfirst step")
NOTHING = "-"
HANDLER_SECONDS = 0.5  # how much later a script with a handler of SIGTERM may train again than one without


def main_table(results: Sequence[Result]) -> Table:
    """How long each kind of fault was felt, beside its target."""
    table = Table(title="Median and worst, in seconds", title_justify="left", header_style="bold")
    table.add_column("fault")
    table.add_column("trials", justify="right")
    for column in MEASURES:
        table.add_column(column, justify="right")
    for name, scenario in SCENARIOS.items():
        if found := of_scenario(results, name):
            table.add_row(*_main_row(scenario, found))
    return table


def phase_table(results: Sequence[Result]) -> Table:
    """Where the time to the first new step went."""
    table = Table(title="Where the time goes: median (worst), in seconds", title_justify="left", header_style="bold")
    table.add_column("fault")
    for column in PARTS:
        table.add_column(column, justify="right")
    for name in SCENARIOS:
        spreads = [spread(of_scenario(results, name), phase) for phase in PHASES]
        if any(spreads):
            table.add_row(name, *(f"{s.median:.2f} ({s.worst:.2f})" if s else NOTHING for s in spreads))
    return table


def complaints(results: Sequence[Result]) -> list[str]:
    """What is not as it should be, in sentences."""
    said = []
    for name, scenario in SCENARIOS.items():
        found = of_scenario(results, name)
        said += [f"{name}: {result.error}" for result in found if result.error]
        measured = spread(found, scenario.target)
        if measured and measured.median > scenario.seconds:
            said.append(f"{name}: the median is {measured.median:.2f} s, the target {scenario.seconds:.1f} s")
        plain = spread(of_scenario(results, scenario.like), scenario.target)
        if measured and plain and measured.median > plain.median + HANDLER_SECONDS:
            said.append(f"{name}: the median is {measured.median:.2f} s, without a handler {plain.median:.2f} s")
        replaced = spread(found, "replaced")
        if scenario.replaced_seconds and replaced and replaced.median > scenario.replaced_seconds:
            said.append(f"{name}: replaced after {replaced.median:.2f} s, the target is {scenario.replaced_seconds:.1f} s")
        for figure, expected in (("rounds", scenario.rounds), ("restarts", 0), ("failures", 0)):
            if wrong := [f"{value:.0f}" for value in values(found, figure) if value != expected]:
                said.append(f"{name}: {figure} {', '.join(wrong)} instead of {expected} in {len(wrong)} of {len(found)} trials")
    return said


def describe(result: Result) -> str:
    """One trial in a line."""
    figures = result.figures
    if figures is None:
        return f"FAILED: {result.error}"
    told = [f"{label} {value:.2f} s" for label, value in _times(result) if value is not None]
    rounds = f"{figures.rounds} round{'' if figures.rounds == 1 else 's'}"
    odd = [f"{count} healthy pods restarted"] if (count := figures.restarts) else []
    odd += [f"{count} failures counted"] if (count := figures.failures) else []
    lost = [f"{steps} step{'' if steps == 1 else 's'} lost"] if (steps := figures.steps_lost) is not None else []
    return ", ".join([*told, *lost, rounds, *odd])


def _times(result: Result) -> list[tuple[str, float | None]]:
    figures = result.figures
    assert figures is not None
    if SCENARIOS[result.scenario].target == "longest_gap":
        return [("longest gap", figures.longest_gap)]
    return [
        ("trains again", figures.trains_again),
        ("pause", figures.pause),
        ("at size", figures.whole),
        ("pod made", figures.replaced),
    ]


def _main_row(scenario: Scenario, results: Sequence[Result]) -> list[str | Text]:
    again, pause = spread(results, "trains_again"), spread(results, "pause")
    if scenario.target == "longest_gap":  # there is no new group: what counts is that nothing was felt
        again, pause = None, spread(results, "longest_gap")
    held = _within(spread(results, scenario.target), scenario.seconds)
    return [
        scenario.name,
        f"{len(values(results, 'rounds'))}/{len(results)}",
        _colored(again, held if scenario.target == "trains_again" else None),
        _colored(pause, held if scenario.target in ("pause", "longest_gap") else None),
        f"{'pause ' if scenario.target != 'trains_again' else ''}{scenario.seconds:.1f}",
        _counted(spread(results, "steps_lost")),
        _colored(spread(results, "whole") if scenario.rounds else None, None),
        _replaced(scenario, spread(results, "replaced")),
        _expected(values(results, "rounds"), scenario.rounds),
        _expected(values(results, "restarts"), 0),
        _expected(values(results, "failures"), 0),
    ]


def _within(measured: Spread | None, target: float) -> bool | None:
    return None if measured is None else measured.median <= target


def _colored(measured: Spread | None, held: bool | None) -> Text:
    text = f"{measured.median:.2f}  {measured.worst:.2f}" if measured else NOTHING
    return Text(text, style={True: "green", False: "red", None: ""}[held])


def _replaced(scenario: Scenario, measured: Spread | None) -> Text:
    if scenario.replaced_seconds is None:
        return _colored(measured, None)
    text = _colored(measured, _within(measured, scenario.replaced_seconds))
    return text.append(f"  (target {scenario.replaced_seconds:.0f})", style="dim")


def _counted(measured: Spread | None) -> str:
    return f"{measured.median:.0f}  {measured.worst:.0f}" if measured else NOTHING


def _expected(found: Sequence[float], expected: int) -> Text:
    text = "  ".join(f"{value:.0f}" for value in sorted(set(found))) or NOTHING
    return Text(text, style="" if set(found) <= {expected} else "red")
