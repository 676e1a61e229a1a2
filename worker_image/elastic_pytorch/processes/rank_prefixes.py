"""What torch's tails of log files (`tee`) write: whole lines, with the rank that a process has at the time in their prefix.

Torch makes a prefix (`log_line_prefix_template`) once, when it starts a process. A process that is taken along into another round has
another rank there.
"""

from collections.abc import Callable
from functools import partial
from string import Template
from typing import Any, cast

from torch.distributed.elastic.multiprocessing import api as multiprocessing_api
from torch.distributed.elastic.multiprocessing.tail_log import TailLog

RANK = "\0rank\0"  # where the rank belongs, in a prefix of torch's making


class RankPrefix:
    """A prefix that becomes text each time torch formats a line with it."""

    def __init__(self, text: str, rank: Callable[[], int]) -> None:
        self._text = text
        self._rank = rank

    def __format__(self, spec: str) -> str:
        return format(self._text.replace(RANK, str(self._rank())), spec)


class WholeLines:
    """A stream that ends each text: torch's tails also pass on a line that has no end yet, and may never get one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(text if text.endswith("\n") else f"{text}\n")


def follow_ranks(template: str | None, rank: Callable[[int], int]) -> str | None:
    """Returns the template to give to torch, whose tails of log files then write whole lines, with the rank of the moment.

    The template is torchrun's, with `${rank}` or without; None or empty: torch's own prefixes.
    `rank` returns the rank at the moment of a local rank.
    """

    def tail_log(
        name: str, files: Any, stream: Any, prefixes: dict[int, str] | None = None, *args: Any, **kwargs: Any
    ) -> TailLog:
        living: Any = {local_rank: RankPrefix(text, partial(rank, local_rank)) for local_rank, text in (prefixes or {}).items()}
        return TailLog(name, files, cast(Any, WholeLines(stream)), living, *args, **kwargs)

    vars(multiprocessing_api)["TailLog"] = tail_log
    return template and Template.pattern.sub(
        lambda found: RANK if "rank" in (found["named"], found["braced"]) else str(found[0]), template
    )
