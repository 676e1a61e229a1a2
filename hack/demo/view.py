"""What the demo shows: while it plays a live picture on a terminal, plain lines anywhere else; at its end what it cost."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults.steps import Done, StepLog, groups_of, kept_seconds, steps_per_second
from elastic_pytorch_local.faults.watcher import Watcher
from rich.box import SIMPLE
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
        job, progress, pace = self._watcher.job, self._watcher.progress, steps_per_second(self._watcher.log)
        step = ["no step yet"] if progress.step is None else [f"step {progress.step}/{progress.total}"]
        step += [] if progress.loss is None else [f"loss {progress.loss:.3f}"]
        workers = f"{job.world} worker{'' if job.world == 1 else 's'}"
        parts = [*step, workers, f"round {job.round}", *([f"{pace:.1f} steps/s"] if pace else [])]
        return Text(job.state, STATE_STYLES.get(job.state, "")).append("   " + "   ".join(parts), style="default")


@dataclass(frozen=True, slots=True)
class InterruptionRow:
    """A change of the group that is over.

    Attributes:
        again_seconds: from the event to the new group's first step; None: not known.
        pause_seconds: for which nothing was learned; None: not known.
        steps_lost: steps done again; None: not known.
    """

    event: str
    before: int
    workers: int
    again_seconds: float | None
    pause_seconds: float | None
    steps_lost: int | None


def interruption_table(rows: Sequence[InterruptionRow]) -> Table:
    """Returns a line for each change of the group."""
    table = Table("event", "workers", box=SIMPLE, title="What happened", title_justify="left", title_style="bold")
    for column in ("new group's first step", "pause of training", "steps lost"):
        table.add_column(column, justify="right")
    for row in rows:
        again = "-" if row.again_seconds is None else f"{row.again_seconds:.1f} s after"
        pause = "-" if row.pause_seconds is None else f"{row.pause_seconds:.1f} s"
        lost = "-" if row.steps_lost is None else str(row.steps_lost)
        table.add_row(row.event, f"{row.before} -> {row.workers}", again, pause, lost)
    return table


def workers_table(job: JobView) -> Table:
    table = Table("RANK", "WORKER", "NODE", "STATE", box=None, padding=(0, 3, 0, 0), header_style="dim")
    for worker in sorted(job.workers, key=lambda w: (w.rank is None, w.rank or 0, w.name)):
        rank = "-" if worker.rank is None else str(worker.rank)
        state = Text(worker.state, style=STATE_STYLES.get(worker.state, "yellow"))
        table.add_row(rank, worker.name, worker.node or "-", state)
    return table


def outcome(done: Done | None, log: StepLog, asked_at: float, job: JobView) -> str:
    """Returns how the training ended, with its goodput in two ways: by the times of its steps in the log, and by the status.

    What comes after the last step, here a validation, is left out of the first, and is training in the second.
    """
    goodput, steps, seen = job.goodput, log.steps(), "not known"
    told = f"Complete after {done.step if done else job.progress.step} steps"
    if done and steps:
        told += f": loss {steps[-1].loss:.3f}, on text it has never seen {done.validation_loss:.3f}. "
        told += f"It trained for {done.at - steps[0].at:.0f} s, {done.at - asked_at:.0f} s after kubectl apply it was done."
        seen = f"{kept_seconds(groups_of(steps)) / (steps[-1].at - asked_at):.1%}"
    else:
        told += ". Its log does not tell with what loss, and how long that took."
    return f"{told} Goodput: {seen} by its log, {str(goodput) or 'not known'} by its status (lost {goodput.lost or 'nothing'})."


def where_to_look(job: str) -> str:
    return f"""The job is left as it is (the next demo removes it). Where to look:
  export KUBECONFIG=.cluster/kubeconfig PATH=$PWD/.cluster/bin:$PATH
  kubectl describe epj/{job}
  kubectl logs -l elasticpytorch.dev/job-name={job} --prefix --tail=30
  kubectl logs -n elastic-pytorch-system -l app.kubernetes.io/name=elastic-pytorch-operator --prefix --tail=50"""
