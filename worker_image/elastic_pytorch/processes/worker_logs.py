"""Configures each worker's environment, stderr and stack dumps, at torch's hook for output."""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from string import Template
from typing import Any, TextIO, cast

from torch.distributed.elastic.multiprocessing import LogsSpecs
from torch.distributed.elastic.multiprocessing import api as multiprocessing_api
from torch.distributed.elastic.multiprocessing.tail_log import TailLog

from elastic_pytorch.pod.group_variables import GROUP_VARIABLES, unit_variables
from elastic_pytorch.pod.preparation import PREPARING
from elastic_pytorch.processes.stderr_tail import STDERR, StderrTails
from elastic_pytorch.stopping.stacks import cold_start_path


class WorkerLogs(LogsSpecs):
    def __init__(
        self, specs: LogsSpecs, tails: StderrTails, *, warm: bool, unit_replicas: int
    ) -> None:
        self._specs = specs
        self.tails = tails
        self._warm = warm
        self.unit_replicas = unit_replicas
        self.preparing = False
        self._inherited = set[TextIO]()  # the agent's streams that workers write to

    def reify(self, envs: dict[int, dict[str, str]]) -> Any:
        """Returns torch's destinations, with a pipe for each stderr that was the agent's."""
        destinations = self._specs.reify(envs)
        self._inherited = set() if all(map(destinations.stdouts.get, envs)) else {sys.stdout}
        for local_rank, environment in envs.items():
            unit_processes = self.unit_replicas * int(environment["LOCAL_WORLD_SIZE"])
            environment.update(
                unit_variables(
                    int(environment["RANK"]), int(environment["WORLD_SIZE"]), unit_processes
                )
            )
            if self.preparing:
                for name in GROUP_VARIABLES:
                    environment.pop(name, None)
                environment[PREPARING] = "1"
            if not self._warm:
                environment["PYTHONPATH"] = cold_start_path()
            if destinations.stderrs.get(local_rank):
                continue
            path = self.tails.path(local_rank)
            if self._warm and path:
                environment[STDERR] = path
            elif path:
                destinations.stderrs[local_rank] = path
            else:
                self._inherited.add(sys.stderr)
        return destinations

    def end_lines(self) -> None:
        """Ends lines of workers that wrote past the agent, or adds an empty one."""
        for stream in self._inherited:
            with contextlib.suppress(OSError):
                print(file=stream, flush=True)

    @property
    def root_log_dir(self) -> str:
        return str(self._specs.root_log_dir)


RANK = "\0rank\0"  # the place of the rank in torch's prefix


class RankPrefix:
    def __init__(self, text: str, rank: Callable[[], int]) -> None:
        self._text = text
        self._rank = rank

    def __format__(self, spec: str) -> str:
        return format(self._text.replace(RANK, str(self._rank())), spec)


class WholeLines:
    """Ends each text: torch's tails also pass on a last line without an end."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(text if text.endswith("\n") else f"{text}\n")


def follow_ranks(template: str | None, rank: Callable[[int], int]) -> str | None:
    """Makes torch's tails write whole lines with present ranks; returns torch's template.

    Torch itself makes a prefix only when it starts a process. The template is torchrun's, perhaps
    with `${rank}`; None or empty: torch's own prefixes. `rank` maps a local rank.
    """

    def tail_log(
        name: str,
        files: Any,
        stream: Any,
        prefixes: dict[int, str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> TailLog:
        living: Any = {
            local_rank: RankPrefix(text, partial(rank, local_rank))
            for local_rank, text in (prefixes or {}).items()
        }
        return TailLog(name, files, cast(Any, WholeLines(stream)), living, *args, **kwargs)

    vars(multiprocessing_api)["TailLog"] = tail_log
    return template and Template.pattern.sub(
        lambda found: RANK if "rank" in (found["named"], found["braced"]) else str(found[0]),
        template,
    )
