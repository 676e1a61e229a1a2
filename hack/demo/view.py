"""The job while the demo plays: a live picture on a terminal, plain lines anywhere else."""

import asyncio
import time

from job import JobStatus
from observer import Observer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

REFRESH_SECONDS = 0.25
LINE_SECONDS = 3.0
NOTES_SHOWN = 14
STATE_STYLES = {"Running": "green", "Complete": "bold green", "Resizing": "yellow", "Failed": "bold red"}


class View:
    """Shows an observer's job and the notes of the play, until cancelled."""

    def __init__(self, console: Console, observer: Observer, title: str) -> None:
        self._console = console
        self._observer = observer
        self._title = title
        self._began = time.time()
        self._notes: list[tuple[float, str]] = []

    def note(self, text: str) -> None:
        """Put down what has been done or has happened, with the time since the demo began."""
        self._notes.append((time.time() - self._began, text))
        if not self._console.is_terminal:
            self._print_line(text)

    async def run(self) -> None:
        """Show the job until cancelled; the last picture stays."""
        if self._console.is_terminal:
            await self._draw()
        else:
            await self._print_lines()

    def picture(self) -> RenderableType:
        """Draw all there is to see now."""
        status = self._observer.status
        parts: list[RenderableType] = [self._headline(), self._progress_bar(), Text()]
        if status.workers:
            parts += [self._workers(status), Text()]
        for condition in ("Degraded", "Failed"):
            if message := status.conditions.get(condition):
                parts.append(Text(f"{condition}: {message}", style="yellow"))
        parts.append(self._timeline())
        return Panel(Group(*parts), title=self._title, title_align="left", border_style="dim")

    async def _draw(self) -> None:
        with Live(self.picture(), console=self._console, auto_refresh=False) as live:
            try:
                while True:
                    await asyncio.sleep(REFRESH_SECONDS)
                    live.update(self.picture(), refresh=True)
            finally:
                live.update(self.picture(), refresh=True)

    async def _print_lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_SECONDS)
            self._print_line(f"    {self._headline().plain}")

    def _print_line(self, text: str) -> None:
        self._console.print(f"[{time.time() - self._began:5.0f} s] {text}", markup=False, highlight=False, soft_wrap=True)

    def _headline(self) -> Text:
        status, last = self._observer.status, self._observer.timeline.last_step()
        headline = Text(status.state, style=STATE_STYLES.get(status.state, ""))
        step = f"step {last.step}/{last.total}" if last else "no step yet"
        workers = f"{status.world_size} worker{'' if status.world_size == 1 else 's'}"
        parts = [step, f"loss {last.loss:.3f}" if last else "", workers, f"round {status.round}"]
        pace = self._observer.timeline.steps_per_second()
        parts.append(f"{pace:.1f} steps/s" if pace else "")
        headline.append("   " + "   ".join(part for part in parts if part), style="default")
        return headline

    def _progress_bar(self) -> ProgressBar:
        last = self._observer.timeline.last_step()
        return ProgressBar(total=last.total if last else 1, completed=last.step if last else 0, width=None)

    def _workers(self, status: JobStatus) -> Table:
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
        for column in ("RANK", "WORKER", "NODE", "STATE"):
            table.add_column(column)
        for worker in sorted(status.workers, key=lambda w: (w.rank is None, w.rank or 0, w.name)):
            rank = "-" if worker.rank is None else str(worker.rank)
            state = Text(worker.state, style=STATE_STYLES.get(worker.state, "yellow"))
            table.add_row(rank, worker.name, worker.node or "-", state)
        return table

    def _timeline(self) -> Text:
        lines = [f"{at:5.0f} s  {text}" for at, text in self._notes[-NOTES_SHOWN:]]
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
