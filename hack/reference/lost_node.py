"""Draws what happens when a node dies and its connections close: who learns it when, and what each does.

When training goes on, when the replacement is created and when the group has its size back are the medians of docs/benchmarks.md. The
moments between them were not measured: the picture says so.
"""

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "lost-node.png"
INK, MUTED, GRID, TRAINS, LOST, WAITS = "#1f2933", "#6b7785", "#e4e8ec", "#9cc3e6", "#c8322b", "#f3d9b1"

# From top to bottom. Each lane's bars: from, to (seconds), colour, word. The operator is in the middle: no arrow crosses a lane.
DEAD, SURVIVORS, NEW = "worker 1, on the node that dies", "workers 0 and 2", "replacement of worker 1"
LANES = [DEAD, SURVIVORS, "operator", NEW, "Kubernetes"]
BEGIN, END = -0.5, 4.6
DIES, TRAINS_AGAIN, REPLACED, JOINED = 0.0, 0.56, 0.48, 3.7  # measured
NOTICED, DECIDED, READY = 0.30, 0.40, 3.5  # between them, in this order
BARS: dict[str, list[tuple[float, float, str, str]]] = {
    DEAD: [(BEGIN, DIES, TRAINS, "trains")],
    SURVIVORS: [
        (BEGIN, DIES, TRAINS, "train"),
        (TRAINS_AGAIN, READY + 0.08, TRAINS, "train on, with 2 workers"),
        (JOINED, END, TRAINS, "train, 3 workers"),
    ],
    "operator": [],
    NEW: [(REPLACED, READY, WAITS, "container starts, imports torch"), (JOINED, END, TRAINS, "trains")],
    "Kubernetes": [(DIES, END, GRID, "still calls the dead node ready, for 40 to 50 s")],
}
# From lane, to lane, when, the word, and on which side of the arrow it stands.
ARROWS = [
    (SURVIVORS, "operator", NOTICED, "a peer is lost", "left"),
    ("operator", SURVIVORS, DECIDED, "round 2, without worker 1", "right"),
    ("operator", NEW, REPLACED, "creates a pod on another node", "right"),
    (NEW, "operator", READY, "ready", "left"),
    ("operator", SURVIVORS, READY + 0.08, "round 3, with the newcomer", "left"),
]
NOTE = (
    "Measured (medians): trains again after 0.56 s, replacement created after 0.48 s, three workers again after 3.7 s.\n"
    "The other moments were not measured. A node that loses power closes no connection: training goes on after 2.6 s."
)


def draw(path: Path) -> None:
    with mpl.rc_context({"font.size": 9, "text.color": INK, "axes.edgecolor": GRID}):
        figure = Figure(figsize=(11, 4.6), layout="constrained")
        axis = figure.subplots()
        for name in LANES:
            _lane(axis, name)
        for begin, end, moment, word, side in ARROWS:
            _arrow(axis, begin, end, moment)
            _word(axis, (begin, end), moment, word, side)
        axis.plot([DIES], [_height(DEAD)], marker="x", markersize=11, markeredgewidth=2.5, color=LOST)
        axis.set_yticks([_height(name) for name in LANES], LANES)
        axis.set_xlim(BEGIN, END)
        axis.set_ylim(-0.6, len(LANES) - 0.4)
        axis.set_xlabel("seconds since the node died", color=MUTED)
        axis.tick_params(length=0, colors=INK)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.set_title("A node dies, and its connections close", loc="left", fontsize=12, fontweight="bold", pad=44)
        axis.text(
            0, 1.03, NOTE, in_layout=False, transform=axis.transAxes, fontsize=9, color=MUTED, va="bottom", linespacing=1.4
        )
        figure.savefig(path, dpi=130)


def _height(name: str) -> int:
    return len(LANES) - 1 - LANES.index(name)


def _lane(axis: Axes, name: str) -> None:
    height = _height(name)
    axis.hlines(height, BEGIN, END, color=GRID, linewidth=1, zorder=0)
    for begin, end, colour, word in BARS[name]:
        axis.barh(height, end - begin, left=begin, height=0.36, color=colour, zorder=1)
        axis.text((begin + end) / 2, height, word, ha="center", va="center", fontsize=8, zorder=4)


def _arrow(axis: Axes, begin: str, end: str, moment: float) -> None:
    start, stop = _height(begin), _height(end)
    axis.annotate(
        "",
        xy=(moment, stop + (0.2 if stop < start else -0.2)),
        xytext=(moment, start),
        arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1, "shrinkA": 0, "shrinkB": 0},
        zorder=3,
    )


def _word(axis: Axes, lanes: tuple[str, str], moment: float, word: str, side: str) -> None:
    height = sum(map(_height, lanes)) / 2
    shift, align = (0.05, "left") if side == "right" else (-0.05, "right")
    axis.text(moment + shift, height, word, fontsize=8, color=MUTED, ha=align, va="center", zorder=4)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
