"""The picture: the effective training time ratio of each job, at the real rate of each trace."""

from collections.abc import Sequence
from pathlib import Path

from bench.picture import AGAIN, GRID, INK, MUTED

from replay.jobs import JOBS
from replay.report import accounts
from replay.run import Run
from replay.traces import TRACES

LIBRARY, BASELINE = "#2f7d4f", "#9aa5b1"
NAMES = {
    "library": "training library",
    "spares": "library, one spare",
    "sharded": "library, sharded in memory",
    "plain": "plain script",
    "stock": "stock torchrun, this operator",
    "restart-all": "without this operator",
}


def draw(runs: Sequence[Run], path: Path) -> None:
    """Writes the picture as SVG, its words as text; nothing if there is no account."""
    if not (found := accounts(runs)):
        return
    import matplotlib as mpl  # noqa: PLC0415 - takes a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"font.size": 11, "text.color": INK, "svg.fonttype": "none", "svg.hashsalt": "trace"}):
        figure = Figure(figsize=(9, 0.7 + 2.7 * len(found)), layout="constrained")
        axes = figure.subplots(len(found), 1, squeeze=False).flatten()
        for axis, (name, jobs) in zip(axes, found.items(), strict=True):
            trace, ratios = TRACES[name], [100 * each.real_ratio for each in jobs.values()]
            axis.barh([NAMES[job] for job in jobs], ratios, color=[color_of(job) for job in jobs], height=0.62)
            for row, ratio in enumerate(ratios):
                axis.annotate(
                    f"{ratio:.2f} %", (ratio, row), xytext=(4, 0), textcoords="offset points", va="center", fontweight="bold"
                )
            axis.set_title(trace.title, loc="left", fontsize=12, fontweight="bold")
            axis.set_xlim(0, 112)
            axis.set_xticks(range(0, 101, 20))
            axis.invert_yaxis()
            axis.tick_params(colors=MUTED, length=0)
            axis.grid(axis="x", color=GRID, linewidth=0.6)
            axis.set_axisbelow(True)
            axis.spines[:].set_visible(False)
        figure.supxlabel("effective training time, in per cent of all time, at the real rate", fontsize=11, color=MUTED)
        figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def color_of(job: str) -> str:
    """Green: the training library; orange: a plain script in a job of ours; grey: stock torchrun."""
    return LIBRARY if JOBS[job].library else BASELINE if JOBS[job].fixed else AGAIN
