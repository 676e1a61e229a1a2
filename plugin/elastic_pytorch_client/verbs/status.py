"""`kubectl epj status NAME`: one job on one screen."""

import argparse

from rich.live import Live

from elastic_pytorch_client.verbs.context import Context, add_name
from elastic_pytorch_client.views.status_view import show_status
from elastic_pytorch_client.watch import follow_job

NAME, HELP = "status", "one job on one screen: how far, who, what holds, what happened"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="show it again whenever it changes, until it ends")
    parser.add_argument(
        "--turns", type=int, default=12, metavar="N", help="how many of the newest events to show (default: 12)"
    )


def run(context: Context, options: argparse.Namespace) -> int:
    """Shows it."""
    if not options.watch:
        job = context.job(options.name)
        context.console.print(show_status(job, context.turns(job), context.now(), most_turns=options.turns))
        return 0
    with Live(console=context.console, auto_refresh=False, vertical_overflow="visible") as live:
        for job in follow_job(context.cluster, context.one_namespace, options.name, clock=context.clock):
            live.update(show_status(job, context.turns(job), context.now(), most_turns=options.turns), refresh=True)
            if job.ended:
                break
    return 0
