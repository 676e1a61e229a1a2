"""The picture: one run of a loss and one of a growth, as the training saw them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import of_scenario
from bench.scenarios import PLAIN, Scenario
from bench.trials import Story, Trial, typical

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # matplotlib is imported only to draw: that takes a second

INK, MUTED, GRID = "#1f2933", "#52606d", "#e4e8ec"
STEPS, AGAIN, WORLD, FAULT = "#1f2933", "#d9480f", "#9cc3e6", "#c8322b"
SHOWN = ("lose-pod", "scale-up")
MAX_WORLD = 5
PAUSE_SECONDS = 0.5
BEFORE_SECONDS, AFTER_SECONDS, MAX_SECONDS = 2.0, 2.0, 12.0
HEAD = "Steps and workers around a loss and around a growth (the median run of each)"
LEGEND = "black dots: steps of rank 0    orange dots: steps done again    blue: workers in the group    red line: the event"


def draw(results: Sequence[Trial], path: Path) -> None:
    """Draws the median run of a loss and of a growth; nothing if neither was measured."""
    runs = [(PLAIN[name], run) for name in SHOWN if (run := typical(of_scenario(results, name), PLAIN[name].target))]
    if not runs:
        return
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    with mpl.rc_context({"font.size": 11, "axes.edgecolor": GRID, "text.color": INK, "axes.labelcolor": MUTED}):
        figure = Figure(figsize=(6.2 * len(SHOWN), 5.2), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
        for axis, (scenario, run) in zip(figure.subplots(1, len(runs), squeeze=False).flatten(), runs, strict=True):
            _panel(axis, scenario, run)
            for each in (axis.xaxis, axis.yaxis):
                each.set_major_locator(MaxNLocator(integer=True))
        figure.suptitle(HEAD, x=0.01, ha="left", fontsize=14, fontweight="bold")
        figure.supxlabel(LEGEND, fontsize=11, color=MUTED)
        figure.savefig(path, dpi=130, facecolor="white")


def spans(story: Story) -> list[tuple[float, float, int]]:
    """Returns when a group trained, as (first step, last step, world size); a pause ends one, if the group is the same or not."""
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


def _panel(axis: "Axes", scenario: Scenario, run: Trial) -> None:
    """One run: the steps as dots, the group's size as an area behind them."""
    measured = run.cost
    assert measured is not None
    last = measured.whole or measured.again or 0.0
    begin, end = -BEFORE_SECONDS, min(last + AFTER_SECONDS, MAX_SECONDS)
    story = [step for step in run.story if begin <= step[0] <= end]
    _world(axis, story)
    highest, colors = 0, []
    for _, number, _ in story:
        colors.append(STEPS if number > highest else AGAIN)
        highest = max(highest, number)
    axis.scatter([at for at, _, _ in story], [number for _, number, _ in story], s=14, c=colors, linewidths=0, zorder=3)
    axis.axvline(0, color=FAULT, linewidth=1.6, zorder=2)
    axis.set_xlim(begin, end)
    axis.set_title(scenario.title, loc="left", fontsize=12, fontweight="bold", pad=24)
    again = f"trains again after {measured.again:.2f} s, " if run.kind == "lose-pod" else ""
    lost = measured.repeated
    caption = f"{again}pause {measured.pause:.2f} s, {lost} step{'' if lost == 1 else 's'} done again"
    axis.text(0, 1.03, caption, transform=axis.transAxes, fontsize=10.5, color=MUTED)
    axis.set_xlabel("seconds since the event")
    axis.set_ylabel("step of the job")
    axis.tick_params(colors=MUTED, length=0)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)


def _world(axis: "Axes", story: Story) -> None:
    """The group's size behind the steps, on a scale of its own; nothing while no group trains."""
    behind = axis.twinx()
    behind.set_zorder(axis.get_zorder() - 1)
    axis.patch.set_visible(False)
    for begin, end, world in spans(story):
        behind.fill_between([begin, end], world, color=WORLD, alpha=0.45, linewidth=0)
    behind.set_ylim(0, MAX_WORLD)
    behind.set_yticks(range(MAX_WORLD))
    behind.set_ylabel("workers in the group")
    behind.tick_params(colors="#3b7cb3", length=0)
    behind.spines[:].set_visible(False)
