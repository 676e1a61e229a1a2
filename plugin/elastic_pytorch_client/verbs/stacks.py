"""`kubectl epj stacks NAME`: where each process of a job is, for jobs that do not advance."""

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from elastic_pytorch_client.cluster import Cluster
from elastic_pytorch_client.errors import NotFound
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.stacks import ProcessStack, group_stacks, is_waited_for, read_stacks
from elastic_pytorch_client.verbs.context import Context, add_name, add_output, print_data
from elastic_pytorch_client.views.widgets import BAD, BUSY, MUTED

WAITED_FOR = "outside of the collective that the others wait in"

NAME, HELP = "stacks", "where the main thread of each training process is, equal stacks together"
EXAMPLES = ("char-lm", "char-lm -o json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    add_output(parser)


def run(context: Context, options: argparse.Namespace) -> int:
    groups = group_stacks(read_stacks(context.cluster, context.job(options.name)))
    if not groups:
        name = options.name
        raise NotFound(f"no worker of {name} runs; `kubectl epj why {name}` says why")
    if options.output:
        print_data(context, options.output, {"groups": describe_groups(groups)})
    else:
        *lines, _ = itertools.chain.from_iterable(_show(group, groups) for group in groups)
        context.console.print(Group(*lines), soft_wrap=True)
    return 0 if groups[0][0].stack else 1


def _show(group: Sequence[ProcessStack], groups: Sequence[Sequence[ProcessStack]]) -> list[Text]:
    trouble, waited_for = group[0].trouble, is_waited_for(group, groups)
    title = Text(name_processes(group), BAD if trouble or waited_for else BUSY)
    title.append(f", {trouble}" if trouble else "", MUTED)
    title.append(f", {WAITED_FOR}" if waited_for else "", BAD)
    return [title, *([Text(group[0].stack)] if group[0].stack else []), Text()]


def stacks_of(cluster: Cluster, job: JobView) -> list[dict[str, Any]]:
    return describe_groups(group_stacks(read_stacks(cluster, job)))


def describe_groups(groups: Sequence[Sequence[ProcessStack]]) -> list[dict[str, Any]]:
    return [_data(group, groups) for group in groups]


def _data(
    group: Sequence[ProcessStack], groups: Sequence[Sequence[ProcessStack]]
) -> dict[str, Any]:
    workers = [(stack.worker, stack.pid) for stack in group]
    processes = [
        {"rank": w.rank, "index": w.index, "worker": w.name, "pid": pid or None}
        for w, pid in workers
    ]
    return {
        "name": name_processes(group),
        "processes": processes,
        "stack": group[0].stack,
        "trouble": group[0].trouble,
        "waitedFor": is_waited_for(group, groups),
    }


def name_processes(group: Sequence[ProcessStack]) -> str:
    """The names of processes, as `ranks 0-2, 5`; a worker with several has their ids."""
    names: list[str] = []
    several = len({stack.worker.name for stack in group}) < len(group)
    if several or any(stack.worker.rank is None for stack in group):
        for worker in dict.fromkeys(stack.worker for stack in group):
            pids = [str(stack.pid) for stack in group if stack.worker == worker and stack.pid]
            who = f"rank {worker.rank}" if worker.rank is not None else f"index {worker.index}"
            many = "process" if len(pids) == 1 else "processes"
            names.append(f"{who} ({many} {', '.join(pids)})" if pids else who)
        return "; ".join(names)
    ranks = sorted(stack.worker.rank or 0 for stack in group)
    ends: list[tuple[int, int]] = []
    for rank in ranks:
        first = ends.pop()[0] if ends and ends[-1][1] == rank - 1 else rank
        ends.append((first, rank))
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
