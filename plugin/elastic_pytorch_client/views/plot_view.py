"""A training over time, in the terminal: the loss, the group's size, and when it was formed again."""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from elastic_pytorch_client.durations import spell
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.series import Recovered, Series
from elastic_pytorch_client.views.canvas import Canvas
from elastic_pytorch_client.views.styles import ACCENT, BAD, MUTED, WORLD, state_style

LABEL_WIDTH = 9
LOSS_LINES, WORLD_LINES = 12, 4

Points = Sequence[tuple[datetime, float]]


def draw_plot(job: JobView, series: Series, width: int) -> Text:
    """The plot.

    Args:
        job: whose it is.
        series: what is known of it.
        width: of the terminal, in characters.
    """
    times = [sample.at for sample in series.samples] + [end for _, end in series.suspensions]
    text = Text()
    text.append(job.name, "bold").append("  ").append(job.state, state_style(job.state))
    if not times or max(times) == min(times):
        return text.append("\n\nThere is nothing to plot yet.\n", MUTED)
    begin, end = min(times), max(times)
    wide = max(20, width - LABEL_WIDTH - 2)
    text.append(f"  {spell((end - begin).total_seconds())} from {begin:%Y-%m-%d %H:%M:%S} UTC\n", MUTED)
    losses = series.losses
    if losses:
        low, high = min(loss for _, loss in losses), max(loss for _, loss in losses)
        text.append("\nloss", f"bold {ACCENT}").append(f"  {losses[0][1]:.4g} → {losses[-1][1]:.4g}\n", MUTED)
        _panel(text, losses, (begin, end), (low, high), (wide, LOSS_LINES), ACCENT, steps=False)
    else:
        text.append("\nThe script reports no loss. To report it: elastic_pytorch.report(step=…, loss=…)\n", MUTED)
    worlds: list[tuple[datetime, float]] = [(at, world) for at, world in series.worlds]
    if worlds:
        worlds.append((end, worlds[-1][1]))
        largest = max(world for _, world in worlds)
        text.append("\nworld size", f"bold {WORLD}").append("  processes that train together\n", MUTED)
        _panel(text, worlds, (begin, end), (0, max(1, largest)), (wide, WORLD_LINES), WORLD, steps=True)
    _suspensions(text, series, (begin, end), wide)
    _recoveries(text, series, (begin, end), wide)
    _axis(text, series, (begin, end), wide)
    return text


def _panel(
    text: Text,
    points: Points,
    span: tuple[datetime, datetime],
    bounds: tuple[float, float],
    size: tuple[int, int],
    style: str,
    *,
    steps: bool,
) -> None:
    """A curve with the bounds of its values at the left."""
    low, high = bounds
    wide, tall = size
    canvas = Canvas(wide, tall)
    height = (high - low) or 1.0
    canvas.curve([(_place(at, span), (value - low) / height) for at, value in points], steps=steps)
    for number, line in enumerate(canvas.lines()):
        label = {0: f"{high:.3g}", tall - 1: f"{low:.3g}"}.get(number, "")
        text.append(f"{label:>{LABEL_WIDTH - 1}} ", MUTED).append("│", MUTED).append(line, style).append("\n")


def _suspensions(text: Text, series: Series, span: tuple[datetime, datetime], wide: int) -> None:
    if not series.suspensions:
        return
    marks = [" "] * wide
    for since, until in series.suspensions:
        first, last = (min(wide - 1, max(0, round(_place(at, span) * (wide - 1)))) for at in (since, until))
        marks[first : last + 1] = "─" * (last + 1 - first)
    text.append(f"{'suspended':>{LABEL_WIDTH}} {''.join(marks).rstrip()}\n", MUTED)


def _recoveries(text: Text, series: Series, span: tuple[datetime, datetime], wide: int) -> None:
    if not series.recoveries:
        return
    marks = {min(wide - 1, max(0, round(_place(r.at, span) * (wide - 1)))): _style(r) for r in series.recoveries}
    text.append(f"{'recovered':>{LABEL_WIDTH}} ", MUTED)
    for place in range(max(marks) + 1):
        text.append("▲" if place in marks else " ", marks.get(place, ""))
    text.append("\n")


def _style(recovery: Recovered) -> str:
    return ACCENT if recovery.resized else BAD


def _axis(text: Text, series: Series, span: tuple[datetime, datetime], wide: int) -> None:
    length = (span[1] - span[0]).total_seconds()
    label = spell(length)
    text.append(" " * LABEL_WIDTH + "└" + "─" * wide + "\n", MUTED)
    text.append(f"{' ' * LABEL_WIDTH} 0{label:>{wide - 1}}\n", MUTED)
    for recovery in series.recoveries[-5:]:
        took = f" in {recovery.seconds:.1f} s" if recovery.seconds is not None else ""
        cause = f" after {recovery.cause}" if recovery.cause else ""
        at = spell((recovery.at - span[0]).total_seconds())
        text.append("▲ ", _style(recovery)).append(f"at {at}: trained again{took}{cause}\n")


def _place(at: datetime, span: tuple[datetime, datetime]) -> float:
    return (at - span[0]).total_seconds() / (span[1] - span[0]).total_seconds()
