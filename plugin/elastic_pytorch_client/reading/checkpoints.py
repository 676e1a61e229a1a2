"""What a job's pod says of its checkpoints. It is the job's own Python that says so, hence any of it may be missing or strange."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastic_pytorch_client.reading.text import parse_time


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint.

    Attributes:
        step: how many steps are done in it.
        name: of its file or folder.
        format: `file`, or `sharded`: written by all ranks together.
        size: in bytes.
        written: when; None: it is not known.
        complete: False: it is being written, or that was cut short.
    """

    step: int
    name: str
    format: str
    size: int
    written: datetime | None
    complete: bool


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A folder, or a prefix in object storage, with the checkpoints of a training.

    Attributes:
        place: its path in the pod, or its URL.
        checkpoints: the newest first.
        trouble: why it cannot be listed; empty if it can.
    """

    place: str
    checkpoints: tuple[Checkpoint, ...]
    trouble: str = ""


def read_folders(text: str) -> list[CheckpointFolder]:
    """The folders in what `elastic_pytorch.storage.listing` has printed.

    Raises:
        ValueError: it has not printed that.
    """
    try:
        return [_folder(each) for each in json.loads(text)]
    except (KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _folder(told: Mapping[str, Any]) -> CheckpointFolder:
    listed = tuple(_checkpoint(each) for each in told.get("checkpoints") or ())
    return CheckpointFolder(_printable(told["place"]), listed, _printable(told.get("error") or ""))


def _checkpoint(told: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        step=int(told["step"]),
        name=_printable(told["name"]),
        format=_printable(told["format"]),
        size=int(told["bytes"]),
        written=parse_time(told.get("written")),
        complete=told["complete"] is True,
    )


def _printable(text: object) -> str:
    """A text without what would move the cursor or colour the screen."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(text))
