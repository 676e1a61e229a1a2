"""Draws who talks to whom: the API server, the operator, the agents and the training processes."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.png"
INK, MUTED, LINE, POD, CONTROL, PROCESS = "#1f2933", "#52606d", "#9aa5b1", "#eef3f8", "#fbf3e4", "#9cc3e6"
POD_WIDTH = 22.0
PODS = [49.0, 75.0, 101.0]  # the middle of each
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}
TITLE = MIDDLE | {"fontweight": "bold"}
DETAIL = MIDDLE | {"color": MUTED}
SMALL: dict[str, Any] = {"va": "center", "color": MUTED, "fontsize": 9}


def draw(path: Path) -> None:
    """Draws the picture into a PNG file."""
    with mpl.rc_context({"font.size": 10, "text.color": INK}):
        figure = Figure(figsize=(11, 5.6), layout="constrained")
        axis = figure.subplots()
        axis.set_xlim(0, 113)
        axis.set_ylim(0, 55)
        axis.axis("off")
        _draw_control_plane(axis)
        for number, middle in enumerate(PODS):
            _draw_pod(axis, number, middle)
        for here, there in pairwise(PODS):
            _draw_arrow(axis, (here + POD_WIDTH / 2 - 1.5, 7.2), (there - POD_WIDTH / 2 + 1.5, 7.2))
        axis.text(PODS[1], 0.8, "gradients between the scripts: gloo or NCCL", **SMALL | {"ha": "center"})
        figure.savefig(path, dpi=130, facecolor="white")


def _draw_control_plane(axis: Axes) -> None:
    _draw_box(axis, (1, 40), (24, 14), CONTROL)
    axis.text(13, 51.5, "API server", **TITLE)
    axis.text(13, 46, "ElasticPyTorchJob\npods, nodes, Service", **DETAIL)
    _draw_box(axis, (45, 40), (67, 14), CONTROL)
    axis.text(78.5, 51.5, "operator, two replicas", **TITLE)
    decides = "decides who is in the group, in numbered rounds;\none replica leads, the other one is on standby"
    axis.text(78.5, 45.6, decides, **DETAIL)
    _draw_box(axis, (1, 17), (24, 13), "white")
    axis.text(13, 27.4, "you", **TITLE)
    axis.text(13, 22, "kubectl apply, scale, get\nkubectl epj status, why, top", **DETAIL)
    _draw_arrow(axis, (25, 46), (45, 46))
    watches = "watches jobs, pods, nodes;\ncreates and deletes pods;\nwrites the status"
    axis.text(35, 47, watches, **SMALL | {"ha": "center", "va": "bottom"})
    _draw_arrow(axis, (13, 30), (13, 40))


def _draw_pod(axis: Axes, number: int, middle: float) -> None:
    left = middle - POD_WIDTH / 2
    _draw_box(axis, (left, 2.5), (POD_WIDTH, 22), POD)
    axis.text(middle, 22.2, f"worker pod {number}", **TITLE)
    _draw_box(axis, (left + 1.5, 14), (POD_WIDTH - 3, 5.4), "white")
    axis.text(middle, 16.7, "agent, state in memory", **DETAIL)
    _draw_box(axis, (left + 1.5, 4.5), (POD_WIDTH - 3, 5.4), PROCESS)
    axis.text(middle, 7.2, "your training script", **MIDDLE)
    _draw_arrow(axis, (middle, 14), (middle, 9.9))
    axis.text(middle + 0.8, 12, "starts, stops", **SMALL)
    _draw_arrow(axis, (middle, 24.5), (middle, 40))
    axis.text(middle + 1, 32.2, "heartbeats up,\nrounds down\n(HTTPS)", **SMALL)


def _draw_box(axis: Axes, corner: tuple[float, float], size: tuple[float, float], color: str) -> None:
    style = "round,pad=0,rounding_size=0.8"
    axis.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, facecolor=color, edgecolor=LINE, linewidth=1))


def _draw_arrow(axis: Axes, begin: tuple[float, float], end: tuple[float, float]) -> None:
    arrow = {"arrowstyle": "<|-|>", "color": INK, "linewidth": 1.1, "shrinkA": 1, "shrinkB": 1}
    axis.annotate("", xy=end, xytext=begin, arrowprops=arrow)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
