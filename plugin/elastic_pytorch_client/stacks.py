"""Where the processes of a job are: the Python stacks of their main threads, asked for by a command in each pod."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from elastic_pytorch_client.cluster import Cluster, Object, is_running, training_container
from elastic_pytorch_client.errors import EpjError, NotAllowed
from elastic_pytorch_client.reading.job_view import JobView, Worker
from elastic_pytorch_client.training_processes import container_command
from elastic_pytorch_client.worker_logs import Choice, find_workers

AT_ONCE = 16  # pods
NO_STACK = "it has not written its stack within 5 s"


@dataclass(frozen=True, slots=True)
class ProcessStack:
    """Where a process is.

    Attributes:
        worker: whose it is.
        pid: in the worker's pod; 0: of a worker whose processes could not be asked.
        stack: of its main thread, as faulthandler writes it, the innermost call first; empty: it is not known.
        trouble: why it is not known; empty if it is.
    """

    worker: Worker
    pid: int
    stack: str = ""
    trouble: str = ""


def read_stacks(cluster: Cluster, job: JobView) -> list[ProcessStack]:
    """The stacks of all training processes, by rank.

    Raises:
        NotAllowed: the user may not run commands in pods.
    """
    pods = {str(pod["metadata"]["name"]): pod for pod in cluster.list_pods(job.namespace, job.name) if is_running(pod)}
    workers = [worker for worker in Choice().of(find_workers(cluster, job, Choice())) if worker.name in pods]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(lambda worker: _read(cluster, job.namespace, worker, pods[worker.name]), workers)
        return [stack for stacks in found for stack in stacks]


def group_stacks(stacks: Iterable[ProcessStack]) -> list[list[ProcessStack]]:
    """The processes that are at the same place, the largest group first; those whose place is not known come last."""
    groups: dict[tuple[str, str], list[ProcessStack]] = {}
    for stack in stacks:
        groups.setdefault((stack.stack, stack.trouble), []).append(stack)
    return sorted(groups.values(), key=lambda group: (bool(group[0].trouble), -len(group)))


def _read(cluster: Cluster, namespace: str, worker: Worker, pod: Object) -> list[ProcessStack]:
    try:
        told = json.loads(cluster.run_in_pod(namespace, worker.name, training_container(pod), container_command("stacks")))
        return [ProcessStack(worker, int(pid), stack, "" if stack else NO_STACK) for pid, stack in told.items()]
    except NotAllowed:
        raise
    except (EpjError, ValueError, AttributeError) as error:
        return [ProcessStack(worker, 0, trouble=str(error))]
