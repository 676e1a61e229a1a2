"""Draws what happens when a node dies: who learns of it when, and what each does.

When training goes on, when the other pod is made and when the group has its size back are the medians of docs/benchmarks.md; what lies
between is drawn where it belongs.
"""

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "lost-node.png"
INK, MUTED, GRID, TRAINS, LOST, WAITS = "#1f2933", "#6b7785", "#e4e8ec", "#9cc3e6", "#c8322b", "#f3d9b1"

# From top to bottom. Each lane's bars: from, to (seconds), colour, word.
LANES = ["worker 0", "worker 1, on the node that dies", "worker 2", "operator", "replacement of worker 1", "Kubernetes"]
BEGIN, END = -0.5, 4.6
DIES, NOTICED, DECIDED, TRAINS_AGAIN, REPLACED, READY, JOINED = 0.0, 0.30, 0.40, 0.56, 0.48, 3.5, 3.7
BARS: dict[str, list[tuple[float, float, str, str]]] = {
    "worker 0": [
        (BEGIN, DIES, TRAINS, "trains"),
        (TRAINS_AGAIN, READY, TRAINS, "trains, 2 workers"),
        (JOINED, END, TRAINS, "3 workers"),
    ],
    "worker 1, on the node that dies": [(BEGIN, DIES, TRAINS, "trains")],
    "worker 2": [
        (BEGIN, DIES, TRAINS, "trains"),
        (TRAINS_AGAIN, READY, TRAINS, "trains, 2 workers"),
        (JOINED, END, TRAINS, "3 workers"),
    ],
    "operator": [],
    "replacement of worker 1": [(REPLACED, READY, WAITS, "container starts, imports torch"), (JOINED, END, TRAINS, "trains")],
    "Kubernetes": [(DIES, END, GRID, "takes the dead node for ready, for another 40 s")],
}
# From lane, to lane, when, the word, and on which side of the arrow it stands.
ARROWS = [
    ("worker 0", "operator", NOTICED, "", "right"),
    ("worker 2", "operator", NOTICED, "a peer is gone", "left"),
    ("operator", "worker 0", DECIDED, "", "right"),
    ("operator", "worker 2", DECIDED, "round 2, without worker 1", "right"),
    ("operator", "replacement of worker 1", REPLACED, "makes a pod elsewhere", "right"),
    ("replacement of worker 1", "operator", READY, "ready", "left"),
    ("operator", "worker 0", READY + 0.08, "", "right"),
    ("operator", "worker 2", READY + 0.08, "round 3, with the newcomer", "left"),
]


def draw(path: Path) -> None:
    with mpl.rc_context({"font.size": 9, "text.color": INK, "axes.edgecolor": GRID}):
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        axis = figure.subplots()
        for name in LANES:
            _lane(axis, name)
        for begin, end, moment, word, side in ARROWS:
            _arrow(axis, begin, end, moment)
            _word(axis, (begin, end), moment, word, side)
        axis.plot(
            [DIES], [_height("worker 1, on the node that dies")], marker="x", markersize=11, markeredgewidth=2.5, color=LOST
        )
        axis.set_yticks([_height(name) for name in LANES], LANES)
        axis.set_xlim(BEGIN, END)
        axis.set_ylim(-0.6, len(LANES) - 0.4)
        axis.set_xlabel("seconds since the node died", color=MUTED)
        axis.tick_params(length=0, colors=INK)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.set_title("A node dies, without a goodbye", loc="left", fontsize=11, fontweight="bold")
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
