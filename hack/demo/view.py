"""What the demo shows while it plays: a live picture on a terminal, plain lines anywhere else."""

import asyncio
import time

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults.steps import steps_per_second
from elastic_pytorch_local.faults.watcher import Watcher
from elastic_pytorch_local.progress_lines import headline
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
    """Shows a watcher's job and the notes of the play, until cancelled."""

    def __init__(self, console: Console, watcher: Watcher, title: str) -> None:
        self._console, self._watcher, self._title = console, watcher, title
        self._began = time.time()
        self._notes: list[str] = []

    def note(self, text: str) -> None:
        """Notes what has been done or has happened, with the time since the demo began."""
        self._notes.append(f"{time.time() - self._began:5.0f} s  {text}")
        if not self._console.is_terminal:
            self._print_line(text)

    async def run(self) -> None:
        """Shows the job until cancelled; the last picture stays."""
        if not self._console.is_terminal:
            while True:
                await asyncio.sleep(LINE_SECONDS)
                self._print_line(f"    {self._headline().plain}")
        with Live(self.picture(), console=self._console, auto_refresh=False) as live:
            try:
                while True:
                    await asyncio.sleep(REFRESH_SECONDS)
                    live.update(self.picture(), refresh=True)
            finally:
                live.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        job = self._watcher.job
        bar = ProgressBar(total=1, completed=self._watcher.progress.fraction or 0, width=None)
        parts: list[RenderableType] = [self._headline(), bar, Text()]
        if job.workers:
            parts += [workers_table(job), Text()]
        troubles = (job.condition(type_) for type_ in ("Degraded", "Failed"))
        parts += [Text(f"{c.type}: {c.message}", style="yellow") for c in troubles if c and c.true and c.message]
        parts.append(Text("\n".join(self._notes[-NOTES_SHOWN:]), no_wrap=True, overflow="ellipsis"))
        return Panel(Group(*parts), title=self._title, title_align="left", border_style="dim")

    def _print_line(self, text: str) -> None:
        self._console.print(f"[{time.time() - self._began:5.0f} s] {text}", markup=False, highlight=False, soft_wrap=True)

    def _headline(self) -> Text:
        job = self._watcher.job
        text = headline(job, self._watcher.progress, steps_per_second(self._watcher.log))
        return Text(text, STATE_STYLES.get(job.state, ""))


def workers_table(job: JobView) -> Table:
    table = Table("RANK", "WORKER", "NODE", "STATE", box=None, padding=(0, 3, 0, 0), header_style="dim")
    for worker in sorted(job.workers, key=lambda w: (w.rank is None, w.rank or 0, w.name)):
        rank = "-" if worker.rank is None else str(worker.rank)
        state = Text(worker.state, style=STATE_STYLES.get(worker.state, "yellow"))
        table.add_row(rank, worker.name, worker.node or "-", state)
    return table


def where_to_look(job: str) -> str:
    return f"""The job is left as it is (the next demo removes it). Where to look:
  export KUBECONFIG=.cluster/kubeconfig PATH=$PWD/.cluster/bin:$PATH
  kubectl describe epj/{job}
  kubectl logs -l elasticpytorch.dev/job-name={job} --prefix --tail=30
  kubectl logs -n elastic-pytorch-system -l app.kubernetes.io/name=elastic-pytorch-operator --prefix --tail=50"""
