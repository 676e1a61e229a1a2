"""Prefixes of lines in the log (`log_line_prefix_template`) with the rank that a process has at the time.

Torch makes a prefix once, when it starts a process. A process that is taken along into another round has another rank there.
"""

from collections.abc import Callable
from functools import partial
from string import Template
from typing import Any

from torch.distributed.elastic.multiprocessing import api as multiprocessing_api
from torch.distributed.elastic.multiprocessing.tail_log import TailLog

RANK = "\0rank\0"  # where the rank belongs, in a prefix of torch's making


class RankPrefix:
    """A prefix that becomes text each time torch formats a line with it.

    Args:
        text: torch's prefix, with `RANK`.
        rank: returns the rank of the process at the moment.
    """

    def __init__(self, text: str, rank: Callable[[], int]) -> None:
        self._text = text
        self._rank = rank

    def __format__(self, spec: str) -> str:
        """Returns the text, formatted as a string is."""
        return format(self._text.replace(RANK, str(self._rank())), spec)


def follow_ranks(template: str, rank: Callable[[int], int]) -> str:
    """Returns the template to give to torch, whose tails of log files then show the rank of the moment.

    Args:
        template: torchrun's, with `${rank}` or without.
        rank: returns the rank at the moment of the process with a local rank.
    """

    def tail_log(
        name: str, files: Any, stream: Any, prefixes: dict[int, str] | None = None, *args: Any, **kwargs: Any
    ) -> TailLog:
        living: Any = {local_rank: RankPrefix(text, partial(rank, local_rank)) for local_rank, text in (prefixes or {}).items()}
        return TailLog(name, files, stream, living, *args, **kwargs)

    vars(multiprocessing_api)["TailLog"] = tail_log
    return Template.pattern.sub(lambda found: RANK if "rank" in (found["named"], found["braced"]) else str(found[0]), template)
