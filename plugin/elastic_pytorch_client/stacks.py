"""The Python stacks of a job's processes, by a command in each pod."""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from elastic_pytorch_client.cluster import Cluster, Object, is_running, training_container
from elastic_pytorch_client.errors import EpjError, NotAllowed
from elastic_pytorch_client.reading.job_view import JobView, Worker
from elastic_pytorch_client.reading.pods.workers import add_pods
from elastic_pytorch_client.training_processes import container_command
from elastic_pytorch_client.worker_logs import Choice

AT_ONCE = 16  # pods
_LIBRARY = re.compile(r"/site-packages/|/dist-packages/|/lib(64)?/python3")
_COLLECTIVE = re.compile(
    r"/torch/(distributed/(?!elastic/|checkpoint/).*|nn/parallel/distributed)\.py\""
    r", line \d+ in (?!<module>)"
)
_BACKWARD = re.compile(r"/torch/autograd/graph\.py\".* in _engine_run_backward")
NO_STACK = "it has not written its stack within 5 s"


@dataclass(frozen=True, slots=True)
class ProcessStack:
    worker: Worker
    pid: int  # 0: the worker's processes are unknown
    stack: str = ""  # the main thread's, innermost call first; empty: unknown
    trouble: str = ""  # why the stack is unknown


def read_stacks(cluster: Cluster, job: JobView) -> list[ProcessStack]:
    """The stacks of all training processes, by rank.

    Raises:
        NotAllowed: the user may not run commands in pods.
    """
    listed = cluster.list_pods(job.namespace, job.name)
    pods = {str(pod["metadata"]["name"]): pod for pod in listed if is_running(pod)}
    chosen = Choice().of(add_pods(job, listed))
    workers = [worker for worker in chosen if worker.name in pods]

    def read(worker: Worker) -> list[ProcessStack]:
        return _read(cluster, job.namespace, worker, pods[worker.name])

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return [stack for stacks in threads.map(read, workers) for stack in stacks]


def group_stacks(stacks: Iterable[ProcessStack]) -> list[list[ProcessStack]]:
    """The processes at the same place, the largest group first, and unknown places last."""
    groups: dict[tuple[str, str], list[ProcessStack]] = {}
    for stack in stacks:
        groups.setdefault((stack.stack, stack.trouble), []).append(stack)
    return sorted(groups.values(), key=lambda group: (bool(group[0].trouble), -len(group)))


def waited_for(groups: Sequence[Sequence[ProcessStack]]) -> list[bool]:
    """For each group whether at least half of all processes wait in collectives, probably for it.

    A process without a known place is outside of collectives.
    """
    waits = [waits_in_collective(group[0].stack) for group in groups]
    waiting = sum(len(group) for group, each in zip(groups, waits, strict=True) if each)
    most_wait = 2 * waiting >= sum(map(len, groups))
    return [most_wait and not each for each in waits]


def waits_in_collective(stack: str) -> bool:
    """Whether a process communicates; the agent's full rule is in stopping/places.py."""
    lines = stack.splitlines()
    called = list(itertools.takewhile(_LIBRARY.search, lines))
    return any(map(_COLLECTIVE.search, called)) or any(map(_BACKWARD.search, called[:1]))


def _read(cluster: Cluster, namespace: str, worker: Worker, pod: Object) -> list[ProcessStack]:
    try:
        command = container_command()
        output = cluster.run_in_pod(namespace, worker.name, training_container(pod), command)
        return [
            ProcessStack(worker, int(pid), str(stack), "" if stack else NO_STACK)
            for pid, stack in json.loads(output).items()
        ]
    except NotAllowed:
        raise
    except (EpjError, ValueError, AttributeError) as error:
        return [ProcessStack(worker, 0, trouble=str(error))]
