"""The checkpoints of a job, one line each, below the place where they are."""

import math
from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from elastic_pytorch_client.durations import seconds_since, short
from elastic_pytorch_client.reading.checkpoints import Checkpoint, CheckpointFolder
from elastic_pytorch_client.views.job_table import Column, JobTable
from elastic_pytorch_client.views.widgets import BAD, BUSY, MUTED

INCOMPLETE = "incomplete"  # is being written, or was cut short


def show_folders(folders: Sequence[CheckpointFolder], now: datetime) -> RenderableType:
    """The tables, one below the other.

    Args:
        folders: in the order to show them.
        now: the time of day.
    """
    shown: list[RenderableType] = []
    for folder in folders:
        shown += [Text()] if shown else []
        shown.append(Text(folder.place, "bold", no_wrap=True, overflow="ignore"))
        if folder.trouble:
            shown.append(Text(f"cannot be listed: {folder.trouble}", BAD))
        elif not folder.checkpoints:
            shown.append(Text("has no checkpoint yet", MUTED))
        else:
            shown.append(_table(folder.checkpoints, now))
    return Group(*shown)


def _table(checkpoints: Sequence[Checkpoint], now: datetime) -> JobTable:
    columns = [
        Column("STEP", 0, [Text(str(each.step)) for each in checkpoints], justify="right"),
        Column("SIZE", 1, [Text(size_of(each.size)) for each in checkpoints], justify="right"),
        Column("AGE", 2, [Text(short(seconds_since(each.written, now)) if each.written else "") for each in checkpoints]),
        Column("STATE", 0, [Text("complete") if each.complete else Text(INCOMPLETE, BUSY) for each in checkpoints]),
        Column("NAME", 0, [Text(each.name) for each in checkpoints]),
    ]
    return JobTable(columns)


def size_of(size: int) -> str:
    """Bytes, in three digits or more, as `1.02 GB`."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 0.9995 * 10**power:
            digits = max(0, 2 - int(math.log10(size / 10**power) + 1e-3))
            return f"{size / 10**power:.{digits}f} {unit}"
    return f"{size} B"
