"""Where the processes of a job are: the Python stacks of their main threads, asked for by a command in each pod."""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from elastic_pytorch_client.cluster import Cluster, Object, is_running, training_container
from elastic_pytorch_client.errors import EpjError, NotAllowed
from elastic_pytorch_client.reading.job_view import JobView, Worker
from elastic_pytorch_client.training_processes import container_command
from elastic_pytorch_client.worker_logs import Choice, find_workers

AT_ONCE = 16  # pods
_LIBRARY = re.compile(r"/site-packages/|/dist-packages/|/lib(64)?/python3")
_COLLECTIVE = re.compile(
    r"/torch/(distributed/(?!elastic/|checkpoint/).*|nn/parallel/distributed)\.py\", line \d+ in (?!<module>)"
)
_BACKWARD = re.compile(r"/torch/autograd/graph\.py\".* in _engine_run_backward")
NO_STACK = "it has not written its stack within 5 s"


@dataclass(frozen=True, slots=True)
class ProcessStack:
    worker: Worker
    pid: int  # 0: the worker's processes could not be asked
    stack: str = ""  # the main thread's, innermost call first; empty: not known
    trouble: str = ""  # why the stack is not known


def read_stacks(cluster: Cluster, job: JobView) -> list[ProcessStack]:
    """The stacks of all training processes, by rank.

    Raises:
        NotAllowed: the user may not run commands in pods.
    """
    pods = {
        str(pod["metadata"]["name"]): pod
        for pod in cluster.list_pods(job.namespace, job.name)
        if is_running(pod)
    }
    workers = [
        worker
        for worker in Choice().of(find_workers(cluster, job, Choice()))
        if worker.name in pods
    ]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(
            lambda worker: _read(cluster, job.namespace, worker, pods[worker.name]), workers
        )
        return [stack for stacks in found for stack in stacks]


def group_stacks(stacks: Iterable[ProcessStack]) -> list[list[ProcessStack]]:
    """The processes that are at the same place, the largest group first; those whose place is not known come last."""
    groups: dict[tuple[str, str], list[ProcessStack]] = {}
    for stack in stacks:
        groups.setdefault((stack.stack, stack.trouble), []).append(stack)
    return sorted(groups.values(), key=lambda group: (bool(group[0].trouble), -len(group)))


def is_waited_for(group: Sequence[ProcessStack], groups: Iterable[Sequence[ProcessStack]]) -> bool:
    """Whether the processes of a group are outside of collectives in which at least half of all wait, so probably for them.

    A process whose place is not known is outside of collectives.
    """
    waiting = [waits_in_collective(each[0].stack) for each in groups for _ in each]
    return not waits_in_collective(group[0].stack) and 2 * sum(waiting) >= len(waiting)


def waits_in_collective(stack: str) -> bool:
    """Whether a process is in its group's communication: the agent has the same rule in full (elastic_pytorch/stopping/places.py)."""
    lines = stack.splitlines()
    called = list(itertools.takewhile(_LIBRARY.search, lines))
    return any(map(_COLLECTIVE.search, called)) or any(map(_BACKWARD.search, called[:1]))


def _read(cluster: Cluster, namespace: str, worker: Worker, pod: Object) -> list[ProcessStack]:
    try:
        told = json.loads(
            cluster.run_in_pod(namespace, worker.name, training_container(pod), container_command())
        )
        return [
            ProcessStack(worker, int(pid), stack, "" if stack else NO_STACK)
            for pid, stack in told.items()
        ]
    except NotAllowed:
        raise
    except (EpjError, ValueError, AttributeError) as error:
        return [ProcessStack(worker, 0, trouble=str(error))]
