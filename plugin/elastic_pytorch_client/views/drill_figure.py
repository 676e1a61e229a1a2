"""A drill as a picture: each recovery as a bar of its phases. matplotlib is optional: it is imported when it is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_pytorch_client.drill.outcome import Outcome
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.recovery_phases import DETECTION, FIRST_STEP, INIT, PHASE_NAMES, PHASES, START, STOP, WAIT
from elastic_pytorch_client.views.drill_view import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NO_MATPLOTLIB = "pictures need matplotlib: pipx inject elastic-pytorch-client matplotlib"
INK, MUTED, GRID = "#1f2933", "#6b7785", "#e4e8ec"
COLORS = {
    DETECTION: "#c8322b",
    STOP: "#e08e45",
    WAIT: "#b9c2cc",
    START: "#9cc3e6",
    INIT: "#1b7f9e",
    FIRST_STEP: "#5b8c5a",
}


def save_drill_figure(job: str, outcomes: Sequence[Outcome], path: Path) -> None:
    """Draws the recoveries of a drill into a file, whose ending says what kind.

    Raises:
        EpjError: matplotlib is not there, no phase is known, or the file cannot be written.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise EpjError(NO_MATPLOTLIB) from None
    bars = [
        (f"{TITLES[outcome.fault]}\n{seen.before} → {seen.workers} workers", seen.recovery)
        for outcome in outcomes
        for seen in outcome.recoveries
        if seen.recovery.phases
    ]
    if not bars:
        raise EpjError(f"there is nothing to draw: no recovery of {job} has phases")
    with mpl.rc_context({"font.size": 10, "axes.edgecolor": GRID, "text.color": INK, "axes.labelcolor": MUTED}):
        figure = Figure(figsize=(9, 1.6 + 0.55 * len(bars)), layout="constrained")
        axis = figure.subplots()
        ends = [0.0] * len(bars)
        for phase in PHASES:
            widths = [recovery.phases.get(phase, 0.0) for _, recovery in bars]
            axis.barh(range(len(bars)), widths, left=ends, color=COLORS[phase], label=PHASE_NAMES[phase], height=0.6)
            ends = [end + width for end, width in zip(ends, widths, strict=True)]
        for place, ((_, recovery), end) in enumerate(zip(bars, ends, strict=True)):
            lost = f", {recovery.steps_lost} steps done again" if recovery.steps_lost else ""
            axis.text(end, place, f"  {end:.1f} s{lost}", va="center", color=MUTED, fontsize=9)
        axis.set_yticks(range(len(bars)), [title for title, _ in bars])
        axis.invert_yaxis()
        axis.set_xlim(0, 1.25 * max(ends) or 1.0)
        axis.set_xlabel("seconds from the disturbance to the first step after it")
        axis.set_title(job, loc="left", fontsize=14, fontweight="bold")
        _dress(axis)
        axis.legend(ncols=len(PHASES), loc="upper left", bbox_to_anchor=(0, -0.3 / len(bars) ** 0.5), frameon=False, fontsize=9)
        try:
            figure.savefig(path, dpi=130, facecolor="white")
        except (OSError, ValueError) as error:
            raise EpjError(f"cannot write {path}: {' '.join(str(error).split())}") from error


def _dress(axis: "Axes") -> None:
    axis.tick_params(colors=MUTED, labelsize=9, length=0)
    axis.grid(color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
