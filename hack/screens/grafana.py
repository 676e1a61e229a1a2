"""Draws a dashboard as Grafana's dark theme does: panels in their grid, each with its title, its curves and its legend."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from panels import Curve, Panel, Place, curves, read_panels, stack
from PIL import Image
from units import ticks, write_value

DPI = 100
SCALE = 1.35  # pixels of the picture for one of Grafana's
WIDTH, CELL, GAP = 1500, 30, 8  # Grafana's: a cell of the grid is so high, and there is so much between two
MARGIN, HEAD = 16, 52
MARK_LINE = 19
TITLE, LEGEND, LEFT, RIGHT, AXIS = 34, 20, 72, 14, 26
PAPER, CARD, EDGE, GRID = "#111217", "#181B1F", "#25272D", "#2A2D33"
INK, FAINT, MARK = "#CCCCDC", "#8E8E99", "#5B6B8C"
COLUMNS = 24
LEGEND_SIZE, CHARACTER, SWATCH = 9.0, 6.1, 24  # of the legend: its letters' height and width, and the line before a name
COLORS = 256


def draw_dashboard(dashboard: Mapping[str, Any], recorded: Mapping[str, Any], path: Path) -> list[str]:
    """Draws a dashboard.

    Args:
        dashboard: as Grafana imports it.
        recorded: `start`, `end` and `step` of what was asked for, in seconds; `answers`, for each panel one `result` a query; `marks`,
            what happened when.
        path: of the PNG.

    Returns:
        The titles of the panels that have nothing to draw.
    """
    moments = range(recorded["start"], recorded["end"] + 1, recorded["step"])
    panels, marks = read_panels(dashboard), recorded["marks"]
    lines = -(-len(marks) // 3)
    head = HEAD + lines * MARK_LINE + GAP
    bottom = max(panel.place.top + panel.place.height for panel in panels)
    height = head + bottom * (CELL + GAP) + MARGIN
    empty = []
    with mpl.rc_context(
        {"font.family": "DejaVu Sans", "font.size": LEGEND_SIZE, "text.color": INK, "axes.unicode_minus": False}
    ):
        page = _Page(WIDTH, height, head)
        _draw_head(page, dashboard["title"], moments, marks)
        for panel, answers in zip(panels, recorded["answers"], strict=True):
            if panel.kind == "row":
                page.text(*_corner(panel.place, head), f"⌄  {panel.title}", size=11.5, weight="bold", below=18)
                continue
            drawn = curves(panel, answers, moments)
            if not drawn:
                empty.append(panel.title)
            _draw_panel(page, panel, drawn, moments, [at for at, _ in marks])
        page.save(path)
    return empty


class _Page:
    """A figure on which places are in Grafana's pixels, from the upper left corner."""

    def __init__(self, width: float, height: float, head: float) -> None:
        self.width, self.height, self.head = width, height, head
        # A point is 1/72 inch: letters are to be as large as Grafana's, in its pixels.
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box, facecolor="none")

    def card(self, left: float, top: float, width: float, height: float) -> None:
        corner = (left, self.height - top - height)
        style = "round,pad=0,rounding_size=3"
        self.figure.add_artist(
            FancyBboxPatch(corner, width, height, style, fc=CARD, ec=EDGE, lw=0.8, transform=self._pixels(), zorder=-2)
        )

    def swatch(self, left: float, middle: float, color: str) -> None:
        corner = (left, self.height - middle - 1.5)
        self.figure.add_artist(Rectangle(corner, 14, 3, fc=color, ec="none", transform=self._pixels()))

    def text(
        self,
        left: float,
        top: float,
        words: str,
        *,
        size: float,
        weight: str = "normal",
        below: float = 0,
        color: str = INK,
        align: str = "left",
    ) -> None:
        place = (left / self.width, 1 - (top + below) / self.height)
        self.figure.text(*place, words, fontsize=size, fontweight=weight, color=color, va="center", ha=align)

    def save(self, path: Path) -> None:
        self.figure.savefig(path, dpi=DPI * SCALE, facecolor=PAPER)
        with Image.open(path) as drawn:
            fewer = drawn.convert("RGB").quantize(COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        fewer.save(path, optimize=True)

    def _pixels(self) -> mpl.transforms.Transform:
        return mpl.transforms.Affine2D().scale(1 / self.width, 1 / self.height) + self.figure.transFigure


def _corner(place: Place, head: float) -> tuple[float, float]:
    column = (WIDTH - 2 * MARGIN + GAP) / COLUMNS
    return MARGIN + place.left * column, head + place.top * (CELL + GAP)


def _draw_head(page: _Page, title: str, moments: range, marks: Sequence[tuple[float, str]]) -> None:
    page.text(MARGIN, 0, title, size=15, weight="bold", below=26)
    span = f"{_clock(moments[0])} to {_clock(moments[-1])}   UTC"
    page.text(WIDTH - MARGIN, 0, span, size=10, below=26, color=FAINT, align="right")
    lines = -(-len(marks) // 3)
    for number, (at, what) in enumerate(marks):
        left = MARGIN + number // lines * (WIDTH - 2 * MARGIN) / 3
        words = f"{number + 1:>2}   {_clock(at)}   {what}"
        page.text(left, HEAD + number % lines * MARK_LINE, words, size=9.5, color=FAINT, below=4)


def _draw_panel(page: _Page, panel: Panel, drawn: Sequence[Curve], moments: range, marks: Sequence[float]) -> None:
    left, top = _corner(panel.place, page.head)
    width = panel.place.width * (WIDTH - 2 * MARGIN + GAP) / COLUMNS - GAP
    height = panel.place.height * (CELL + GAP) - GAP
    page.card(left, top, width, height)
    page.text(left + 10, top, panel.title, size=10.5, weight="bold", below=TITLE / 2)
    if not drawn:
        page.text(left + width / 2, top, panel.empty, size=11, color=FAINT, below=height / 2, align="center")
        return
    rows = _legend_rows([curve.name for curve in drawn], width - 20)
    plot = height - TITLE - AXIS - len(rows) * LEGEND - 6
    axes = page.axes(left + LEFT, top + TITLE, width - LEFT - RIGHT, plot)
    most = _draw_curves(axes, panel, drawn, moments)
    _draw_axes(axes, panel, most, moments, marks)
    colors = {curve.name: curve.color for curve in drawn}
    for number, row in enumerate(rows):
        at, below = left + 10.0, height - (len(rows) - number) * LEGEND + LEGEND / 2 - 4
        for name in row:
            page.swatch(at, top + below, colors[name])
            page.text(at + SWATCH - 4, top, name, size=LEGEND_SIZE, below=below)
            at += _entry_width(name)


def _draw_curves(axes: Axes, panel: Panel, drawn: Sequence[Curve], moments: range) -> float:
    """Draws a panel's curves; returns the highest value. Bars are always stacked ones."""
    if panel.stacked:
        edges = stack(drawn)
        # From the top down: of several lines in one place, the one of a curve that has a height is seen.
        for curve, (lower, upper) in reversed(list(zip(drawn, edges, strict=True))):
            step: Literal["mid"] | None = "mid" if panel.bars else None
            axes.fill_between(moments, lower, upper, color=curve.color, alpha=panel.fill, lw=0, step=step)
            if not panel.bars:
                axes.plot(moments, upper, color=curve.color, lw=1)
        return _highest([upper for _, upper in edges])
    for curve in drawn:
        axes.plot(moments, curve.values, color=curve.color, lw=1.2)
        if panel.fill:
            axes.fill_between(moments, 0, curve.values, color=curve.color, alpha=panel.fill, lw=0)
        alone = _alone(curve.values)
        axes.plot([moments[i] for i in alone], [curve.values[i] for i in alone], ".", color=curve.color, ms=4)
    return _highest([curve.values for curve in drawn])


def _highest(rows: Sequence[Sequence[float]]) -> float:
    return max(value for row in rows for value in row if not math.isnan(value))


def _alone(values: Sequence[float]) -> list[int]:
    """Where a value has no neighbour, so that no line would show it."""
    padded = [math.nan, *values, math.nan]
    return [
        number
        for number, (before, value, after) in enumerate(zip(padded, padded[1:], padded[2:], strict=False))
        if math.isnan(before) and not math.isnan(value) and math.isnan(after)
    ]


def _draw_axes(axes: Axes, panel: Panel, most: float, moments: range, marks: Sequence[float]) -> None:
    marked = ticks(most, panel.unit)
    axes.set_xlim(moments[0], moments[-1])
    axes.set_ylim(0, max(marked[-1], most * 1.02))
    axes.set_yticks(marked, [write_value(value, panel.unit) for value in marked])
    every = 30
    times = list(range(-(-moments[0] // every) * every, moments[-1] - every // 3, every))
    axes.set_xticks(times, [_clock(at) for at in times])
    axes.tick_params(length=0, labelcolor=FAINT, labelsize=8.5, pad=5)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    for number, at in enumerate(marks, start=1):
        axes.axvline(at, color=MARK, lw=0.7, ls=(0, (2, 3)), zorder=0.5)
        axes.text(at, 1.01, str(number), color=MARK, fontsize=6.5, ha="center", transform=axes.get_xaxis_transform())
    for spine in axes.spines.values():
        spine.set_visible(False)


def _legend_rows(names: Sequence[str], width: float) -> list[list[str]]:
    """Which names stand beside each other under a panel."""
    rows: list[list[str]] = [[]]
    used = 0.0
    for name in names:
        if rows[-1] and used + _entry_width(name) > width:
            rows.append([])
            used = 0.0
        rows[-1].append(name)
        used += _entry_width(name)
    return rows


def _entry_width(name: str) -> float:
    return SWATCH + CHARACTER * len(name) * LEGEND_SIZE / 7 + 8


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
