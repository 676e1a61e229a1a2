"""`kubectl epj stacks NAME`: where each process of a job is, for jobs that do not advance."""

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from elastic_pytorch_client.cluster import Cluster
from elastic_pytorch_client.errors import NotFound
from elastic_pytorch_client.reading.job_view import JobView, Worker
from elastic_pytorch_client.stacks import ProcessStack, group_stacks, read_stacks, waited_for
from elastic_pytorch_client.verbs.context import Context, add_name, add_output, print_data
from elastic_pytorch_client.views.widgets import BAD, BUSY, MUTED

WAITED_FOR = "outside of the collective that the others wait in"

NAME, HELP = "stacks", "where the main thread of each training process is, equal stacks together"
EXAMPLES = ("char-lm", "char-lm -o json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    add_output(parser)


def run(context: Context, options: argparse.Namespace) -> int:
    groups = stacks_of(context.cluster, context.job(options.name))
    if not groups:
        name = options.name
        raise NotFound(f"no worker of {name} runs; `kubectl epj why {name}` says why")
    if options.output:
        print_data(context, options.output, {"groups": groups})
    else:
        *lines, _ = itertools.chain.from_iterable(map(_show, groups))
        context.console.print(Group(*lines), soft_wrap=True)
    return 0 if groups[0]["stack"] else 1


def _show(group: dict[str, Any]) -> list[Text]:
    trouble, late = group["trouble"], group["waitedFor"]
    title = Text(group["name"], BAD if trouble or late else BUSY)
    title.append(f", {trouble}" if trouble else "", MUTED)
    title.append(f", {WAITED_FOR}" if late else "", BAD)
    return [title, *([Text(group["stack"])] if group["stack"] else []), Text()]


def stacks_of(cluster: Cluster, job: JobView) -> list[dict[str, Any]]:
    groups = group_stacks(read_stacks(cluster, job))
    return [_data(*each) for each in zip(groups, waited_for(groups), strict=True)]


def _data(group: Sequence[ProcessStack], late: bool) -> dict[str, Any]:
    workers = [(stack.worker, stack.pid or None) for stack in group]
    processes = [
        {"rank": w.rank, "index": w.index, "worker": w.name, "pid": pid} for w, pid in workers
    ]
    return {
        "name": name_processes(group),
        "processes": processes,
        "stack": group[0].stack,
        "trouble": group[0].trouble,
        "waitedFor": late,
    }


def name_processes(group: Sequence[ProcessStack]) -> str:
    """The names of processes, as `ranks 0-2, 5`; a worker with several has their ids."""
    pids: dict[Worker, list[str]] = {stack.worker: [] for stack in group}
    if len(pids) < len(group) or any(worker.rank is None for worker in pids):
        for stack in group:
            pids[stack.worker] += [str(stack.pid)] if stack.pid else []
        names = []
        for worker, own in pids.items():
            who, many = worker.rank_or_index, "process" if len(own) == 1 else "processes"
            names.append(f"{who} ({many} {', '.join(own)})" if own else who)
        return "; ".join(names)
    ranks = sorted(stack.worker.rank or 0 for stack in group)
    ends: list[tuple[int, int]] = []
    for rank in ranks:
        first = ends.pop()[0] if ends and ends[-1][1] == rank - 1 else rank
        ends.append((first, rank))
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
