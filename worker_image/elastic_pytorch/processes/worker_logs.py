"""Configures each worker's environment, stderr and stack dumps, at torch's own hook for a worker's output."""

import contextlib
import os
import sys
from typing import Any, TextIO

from torch.distributed.elastic.multiprocessing import LogsSpecs

from elastic_pytorch.pod.group_variables import GROUP_VARIABLES, unit_variables
from elastic_pytorch.pod.preparation import PREPARING
from elastic_pytorch.processes.stderr_tail import STDERR, StderrTails
from elastic_pytorch.stopping.stacks import COLD_START


class WorkerLogs(LogsSpecs):
    def __init__(self, specs: LogsSpecs, tails: StderrTails, *, warm: bool, unit_replicas: int = 1) -> None:
        self._specs = specs
        self.tails = tails
        self._warm = warm
        self.unit_replicas = unit_replicas
        self.preparing = False  # the workers start before their group exists
        self._inherited = set[TextIO]()  # the agent's own streams that workers write to

    def reify(self, envs: dict[int, dict[str, str]]) -> Any:
        """Returns torch's destinations, with the agent's pipe for each stderr that would have been the agent's own."""
        destinations = self._specs.reify(envs)
        self._inherited = set() if all(map(destinations.stdouts.get, envs)) else {sys.stdout}
        for local_rank, environment in envs.items():
            unit_processes = self.unit_replicas * int(environment["LOCAL_WORLD_SIZE"])
            environment.update(unit_variables(int(environment["RANK"]), int(environment["WORLD_SIZE"]), unit_processes))
            if self.preparing:
                for name in GROUP_VARIABLES:
                    environment.pop(name, None)
                environment[PREPARING] = "1"
            if not self._warm:
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, [COLD_START, os.environ.get("PYTHONPATH")]))
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
        """Ends the line in which a worker may have ended, wherever it wrote past the agent. If it was ended, this is an empty one."""
        for stream in self._inherited:
            with contextlib.suppress(OSError):
                print(file=stream, flush=True)

    @property
    def root_log_dir(self) -> str:
        return str(self._specs.root_log_dir)
