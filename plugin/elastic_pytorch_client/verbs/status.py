"""`kubectl epj status NAME`: one job on one screen."""

import argparse

from rich.console import RenderableType
from rich.live import Live

from elastic_pytorch_client.errors import Refused
from elastic_pytorch_client.evidence import read_job_events
from elastic_pytorch_client.manifest import shown_manifest
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.verbs.context import Context, add_name, add_output, print_data
from elastic_pytorch_client.views.status_view import show_status
from elastic_pytorch_client.watch import follow_job, until_ended

NAME, HELP = "status", "one job on one screen: progress, workers, conditions, events"
EXAMPLES = ("char-lm", "char-lm --watch", "char-lm -o yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    add_output(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="refresh at each change, until the job ends"
    )


def run(context: Context, options: argparse.Namespace) -> int:
    if options.output and options.watch:
        raise Refused(
            "-o prints the job once: use `kubectl get epj NAME --watch -o json`, or leave out "
            "--watch"
        )
    if options.output:
        found = context.cluster.get_job(context.one_namespace, options.name)
        print_data(context, options.output, shown_manifest(found))
        return 0

    def draw(job: JobView) -> RenderableType:
        return show_status(job, read_job_events(context.cluster, job), context.now())

    if not options.watch:
        context.console.print(draw(context.job(options.name)))
        return 0
    place = (context.cluster, context.one_namespace, options.name)
    jobs = until_ended(follow_job(*place, clock=context.clock))
    if not context.console.is_terminal:
        for job in jobs:
            context.console.print(draw(job))
        return 0
    with Live(console=context.console, auto_refresh=False, vertical_overflow="visible") as live:
        for job in jobs:
            live.update(draw(job), refresh=True)
    return 0
