"""`kubectl epj logs NAME`: the logs of the workers, by rank, across replaced pods."""

import argparse
from collections.abc import Iterable, Sequence

from rich.text import Text

from elastic_pytorch_client.errors import NotFound
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.verbs.context import Context, add_name
from elastic_pytorch_client.worker_logs import Choice, Line, find_workers, follow_logs, read_logs

NAME, HELP = "logs", "the logs of the workers, by rank; -f continues when pods are replaced"
EXAMPLES = ("char-lm --rank 0 -f", "char-lm --tail 50")
COLORS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    for option, which in (("--rank", "that has this rank"), ("--index", "with this index")):
        about = f"only the worker {which} (may be repeated)"
        parser.add_argument(option, type=int, action="append", default=[], help=about)
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the job ends")
    parser.add_argument(
        "--tail",
        type=int,
        default=-1,
        metavar="N",
        help="only the last N lines of each worker (default: all)",
    )
    parser.add_argument("--timestamps", action="store_true", help="print the time of each line")
    parser.add_argument(
        "--no-prefix", action="store_true", help="do not print which worker logged the line"
    )


def run(context: Context, options: argparse.Namespace) -> int:
    choice = Choice(frozenset(options.rank), frozenset(options.index))
    tail_lines = options.tail if options.tail >= 0 else None  # as in kubectl
    job = context.job(options.name)
    if not options.follow:
        job = find_workers(context.cluster, job, choice)
        if not choice.of(job):
            raise NotFound(no_such_worker(job, options.rank, options.index))
        lines: Iterable[Line] = read_logs(context.cluster, job, choice, tail_lines=tail_lines)
    else:
        lines = follow_logs(
            context.cluster, context.one_namespace, job.name, choice, tail_lines=tail_lines
        )
    prefixed = not options.no_prefix and len(options.rank) + len(options.index) != 1
    for line in lines:
        text = Text()
        if prefixed:
            color = COLORS[line.worker.index % len(COLORS)]
            text.append(f"[{line.worker.rank_or_index}] ", color)
        if options.timestamps:
            text.append(f"{line.at} ", "bright_black")
        context.console.print(text.append(line.text), soft_wrap=True)
    return 0


def no_such_worker(job: JobView, ranks: Sequence[int], indexes: Sequence[int]) -> str:
    wanted = [f"rank {rank}" for rank in ranks] + [f"index {index}" for index in indexes]
    who = " or ".join(wanted) if wanted else "worker"
    if ranks and job.unlisted:
        ranks_of = f"the status of {job.name} has the ranks of {len(job.workers)} workers"
        return f"{ranks_of}, and no {who}: choose it by --index"
    return f"{job.name} has no {who} now; `kubectl epj status {job.name}` shows its workers"
