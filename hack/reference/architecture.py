"""Draws who talks to whom: the API server, the operator, the agents and the training processes."""

import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.png"
INK, MUTED, LINE, POD, CONTROL, PROCESS = "#1f2933", "#52606d", "#9aa5b1", "#eef3f8", "#fbf3e4", "#9cc3e6"
WIDTH, HEIGHT = 113.0, 55.0
PODS = 3
POD_WIDTH, POD_GAP, POD_LEFT = 22.0, 4.0, 38.0
_MIDDLE: Mapping[str, Any] = {"ha": "center", "va": "center", "color": MUTED}
_SMALL: Mapping[str, Any] = {"color": MUTED, "fontsize": 9}


def draw(path: Path) -> None:
    """Draw the picture into a PNG file."""
    with mpl.rc_context({"font.size": 10, "text.color": INK}):
        figure = Figure(figsize=(11, 5.6), layout="constrained")
        axis = figure.subplots()
        axis.set_xlim(0, WIDTH)
        axis.set_ylim(0, HEIGHT)
        axis.axis("off")
        _control_plane(axis)
        centres = [_pod(axis, index) for index in range(PODS)]
        _traffic(axis, centres)
        figure.savefig(path, dpi=130, facecolor="white")


def _control_plane(axis: Axes) -> None:
    _box(axis, (1, 40), (24, 14), CONTROL)
    _title(axis, 13, 51.5, "API server")
    axis.text(13, 46, "ElasticPyTorchJob\npods, nodes, Service", ha="center", va="center", color=MUTED)
    _box(axis, (45, 40), (67, 14), CONTROL)
    _title(axis, 78.5, 51.5, "operator, two replicas")
    axis.text(
        78.5,
        45.6,
        "decides who is in the group, in numbered rounds;\none replica leads, the other one is on standby",
        **_MIDDLE,
    )
    _box(axis, (1, 17), (24, 13), "white")
    _title(axis, 13, 27.4, "you")
    axis.text(13, 22, "kubectl apply, scale, get\nkubectl epj status, why, top", **_MIDDLE)


def _pod(axis: Axes, index: int) -> float:
    """One worker pod; the middle of it."""
    left = POD_LEFT + index * (POD_WIDTH + POD_GAP)
    centre = left + POD_WIDTH / 2
    _box(axis, (left, 2.5), (POD_WIDTH, 22), POD)
    _title(axis, centre, 22.2, f"worker pod {index}")
    _box(axis, (left + 1.5, 14), (POD_WIDTH - 3, 5.4), "white")
    axis.text(centre, 16.7, "agent, state in memory", **_MIDDLE)
    _box(axis, (left + 1.5, 4.5), (POD_WIDTH - 3, 5.4), PROCESS)
    axis.text(centre, 7.2, "your training script", ha="center", va="center")
    _arrow(axis, (centre, 14), (centre, 9.9), "<|-|>")
    axis.text(centre + 0.8, 12, "starts, stops", va="center", **_SMALL)
    return centre


def _traffic(axis: Axes, centres: list[float]) -> None:
    _arrow(axis, (25, 46), (45, 46), "<|-|>")
    axis.text(
        35, 47, "watches jobs, pods, nodes;\ncreates and deletes pods;\nwrites the status", ha="center", va="bottom", **_SMALL
    )
    _arrow(axis, (13, 30), (13, 40), "<|-|>")
    for centre in centres:
        _arrow(axis, (centre, 24.5), (centre, 40), "<|-|>")
        axis.text(centre + 1, 32.2, "heartbeats up,\nrounds down\n(HTTPS)", va="center", **_SMALL)
    for here, there in pairwise(centres):
        _arrow(axis, (here + POD_WIDTH / 2 - 1.5, 7.2), (there - POD_WIDTH / 2 + 1.5, 7.2), "<|-|>")
    axis.text(centres[1], 0.8, "gradients between the scripts: gloo or NCCL", ha="center", va="center", **_SMALL)


def _box(axis: Axes, corner: tuple[float, float], size: tuple[float, float], colour: str) -> None:
    style = "round,pad=0,rounding_size=0.8"
    axis.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, facecolor=colour, edgecolor=LINE, linewidth=1))


def _title(axis: Axes, x: float, y: float, text: str) -> None:
    axis.text(x, y, text, ha="center", va="center", fontweight="bold")


def _arrow(axis: Axes, begin: tuple[float, float], end: tuple[float, float], style: str) -> None:
    arrow = {"arrowstyle": style, "color": INK, "linewidth": 1.1, "shrinkA": 1, "shrinkB": 1}
    axis.annotate("", xy=end, xytext=begin, arrowprops=arrow)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
