"""The picture: one run of each kind of fault, as the training saw it."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from results import Result, of_scenario, typical
from scenarios import PLAIN, Scenario

INK, MUTED, GRID = "#1f2933", "#6b7785", "#e4e8ec"
STEPS, WORLD, FAULT, LOST = "#1f2933", "#9cc3e6", "#c8322b", "#e08a2e"
COLUMNS = 3
MOST_WORLD = 5
PAUSE_SECONDS = 0.5
BEFORE_SECONDS, AFTER_SECONDS = 2.0, 1.5
LEAST_SECONDS, MOST_SECONDS = 2.5, 12.0

Story = Sequence[tuple[float, int, int]]


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw the typical run of each kind of fault that has one."""
    runs = [(s, run) for name, s in PLAIN.items() if (run := typical(of_scenario(results, name), s.target))]
    if not runs:
        return
    rows = -(-len(runs) // COLUMNS)
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": GRID, "text.color": INK, "axes.labelcolor": MUTED}):
        figure = Figure(figsize=(4.4 * COLUMNS, 2.9 * rows + 0.9), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
        axes = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
        for axis, (scenario, run) in zip(axes, runs, strict=False):
            _panel(axis, scenario, run)
        for axis in axes[len(runs) :]:
            axis.set_visible(False)
        figure.suptitle(
            "What training sees of a fault: the median run of each kind\n",
            x=0.01,
            ha="left",
            fontsize=13,
            fontweight="bold",
        )
        figure.text(
            0.01,
            0.985,
            "\n\ndots: steps of rank 0 (orange: done again)   blue: workers in the group (right scale)   red: the fault",
            va="top",
            color=MUTED,
        )
        figure.savefig(path, dpi=130, facecolor="white")


def spans(story: Story) -> list[tuple[float, float, int]]:
    """When a group trained, as (first step, last step, world size); a pause ends one, if the group is the same or not."""
    found: list[tuple[float, float, int]] = []
    highest = 0
    for at, number, world in story:
        begin, last, size = found[-1] if found else (at, at, 0)
        if world == size and at - last < PAUSE_SECONDS and number > highest:
            found[-1] = (begin, at, size)
        else:
            found.append((at, at, world))
        highest = number
    return found


def _panel(axis: Axes, scenario: Scenario, run: Result) -> None:
    """One run: the steps as dots, the group's size as an area behind them."""
    measured = run.figures
    assert measured is not None
    end = (measured.whole if scenario.rounds else None) or measured.trains_again or max(at for at, _, _ in run.story)
    begin, end = -BEFORE_SECONDS, min(max(end + AFTER_SECONDS, LEAST_SECONDS), MOST_SECONDS)
    story = [step for step in run.story if begin <= step[0] <= end]
    origin = max((number for at, number, _ in story if at <= 0), default=story[0][1])
    _world(axis, story)
    highest, colors = 0, []
    for _, number, _ in story:
        colors.append(STEPS if number > highest else LOST)
        highest = max(highest, number)
    taken = [number - origin for _, number, _ in story]
    axis.scatter([at for at, _, _ in story], taken, s=7, c=colors, linewidths=0, zorder=3)
    axis.axvline(0, color=FAULT, linewidth=1.4, zorder=2)
    axis.set_xlim(begin, end)
    axis.set_title(scenario.title, loc="left", fontsize=10, fontweight="bold", pad=18)
    axis.text(0, 1.03, _caption(scenario, run), transform=axis.transAxes, fontsize=8.5, color=MUTED)
    axis.set_xlabel("seconds since the fault", fontsize=8)
    axis.set_ylabel("steps", fontsize=8)
    axis.tick_params(colors=MUTED, labelsize=8, length=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _world(axis: Axes, story: Story) -> None:
    """The group's size behind the steps, on a scale of its own; nothing while nobody trains."""
    behind = axis.twinx()
    behind.set_zorder(axis.get_zorder() - 1)
    axis.patch.set_visible(False)
    for begin, end, world in spans(story):
        behind.fill_between([begin, end], world, color=WORLD, alpha=0.45, linewidth=0)
    behind.set_ylim(0, MOST_WORLD)
    behind.set_yticks(range(MOST_WORLD))
    behind.tick_params(colors="#5b93c4", labelsize=8, length=0)
    for spine in behind.spines.values():
        spine.set_visible(False)


def _caption(scenario: Scenario, run: Result) -> str:
    measured = run.figures
    assert measured is not None
    if scenario.target == "longest_gap":
        return f"longest time between two steps {measured.longest_gap:.2f} s"
    told = [f"trains again after {measured.trains_again:.2f} s"] if scenario.target == "trains_again" else []
    told += [f"pause {measured.pause:.2f} s"]
    told += [f"{measured.steps_lost} steps lost"] if measured.steps_lost else []
    return ", ".join(told)
