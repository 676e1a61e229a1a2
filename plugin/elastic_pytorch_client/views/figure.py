"""A training over time as a picture. matplotlib is an extra: it is imported when it is needed."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_pytorch_client.durations import spell
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NO_MATPLOTLIB = "pictures need matplotlib: pipx inject elastic-pytorch-client matplotlib"
INK, MUTED, GRID = "#1f2933", "#6b7785", "#e4e8ec"
LOSS, WORLD, RECOVERY = "#1b7f9e", "#9cc3e6", "#c8322b"


def save_figure(job: JobView, series: Series, path: Path) -> None:
    """Draws the plot into a file, whose ending says what kind.

    Raises:
        EpjError: matplotlib is not there, nothing is known yet, or the file cannot be written.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise EpjError(NO_MATPLOTLIB) from None
    times = [sample.at for sample in series.samples] + [end for _, end in series.suspensions]
    if len(times) < 2:
        raise EpjError(f"there is nothing to plot of {job.name} yet")
    begin, end = min(times), max(times)
    length = (end - begin).total_seconds()
    unit, size = next((u, s) for u, s in (("hours", 3600), ("minutes", 60), ("seconds", 1)) if length >= 3 * s or s == 1)

    def place(at: datetime) -> float:
        return (at - begin).total_seconds() / size

    with mpl.rc_context({"font.size": 10, "axes.edgecolor": GRID, "text.color": INK, "axes.labelcolor": MUTED}):
        figure = Figure(figsize=(9, 5.4))
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1), gridspec_kw={"hspace": 0.08})
        figure.subplots_adjust(left=0.08, right=0.98, top=0.88, bottom=0.1)
        if series.losses:
            upper.plot([place(at) for at, _ in series.losses], [loss for _, loss in series.losses], color=LOSS, linewidth=1.8)
        else:
            upper.text(0.5, 0.5, "the script reports no loss", transform=upper.transAxes, ha="center", color=MUTED)
        upper.set_ylabel("loss")
        if series.worlds:
            worlds = [*series.worlds, (end, series.worlds[-1][1])]
            sizes = [world for _, world in worlds]
            lower.fill_between([place(at) for at, _ in worlds], sizes, step="post", color=WORLD, linewidth=0)
            lower.set_ylim(0, max(sizes) + 0.5)
        lower.set_ylabel("world size")
        lower.yaxis.get_major_locator().set_params(integer=True)
        lower.set_xlabel(unit, color=MUTED)
        for since, until in series.suspensions:
            upper.axvspan(place(since), place(until), color=GRID, linewidth=0)
            lower.axvspan(place(since), place(until), color=GRID, linewidth=0)
            middle = (place(since) + place(until)) / 2
            lower.text(
                middle,
                0.5,
                "suspended",
                ha="center",
                va="center",
                color=MUTED,
                fontsize=8,
                transform=lower.get_xaxis_transform(),
            )
        for recovery in series.recoveries:
            for axis in (upper, lower):
                color = LOSS if recovery.resized else RECOVERY
                axis.axvline(place(recovery.at), color=color, linewidth=1, alpha=0.7, linestyle=(0, (2, 2)))
        for axis in (upper, lower):
            dress(axis)
        figure.text(0.08, 0.945, job.name, fontsize=14, fontweight="bold")
        figure.text(0.08, 0.905, _caption(job, series, length), color=MUTED)
        try:
            figure.savefig(path, dpi=130, facecolor="white")
        except (OSError, ValueError) as error:
            raise EpjError(f"cannot write {path}: {' '.join(str(error).split())}") from error


def _caption(job: JobView, series: Series, length: float) -> str:
    parts = [job.state, f"{spell(length)}"]
    if series.losses:
        parts.append(f"loss {series.losses[0][1]:.4g} → {series.losses[-1][1]:.4g}")
    count = len(series.recoveries)
    took = [r.seconds for r in series.recoveries if r.seconds is not None]
    if count:
        longest = f", {max(took):.1f} s at most" if took else ""
        parts.append(f"trained again {count} {'time' if count == 1 else 'times'} (dashed lines{longest})")
    return "   ·   ".join(parts)


def dress(axis: "Axes") -> None:
    """Gives a pair of axes the look of all figures."""
    axis.tick_params(colors=MUTED, labelsize=9, length=0)
    axis.grid(color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
