"""`kubectl epj plot NAME`: the loss, the group's size and its recoveries over time, in the terminal or as a picture."""

import argparse
import itertools
from pathlib import Path

from elastic_pytorch_client.reading.series import gather
from elastic_pytorch_client.verbs.context import Context, add_name
from elastic_pytorch_client.views.plot_view import draw_plot
from elastic_pytorch_client.worker_logs import Choice, read_logs

NAME, HELP = "plot", "loss, world size and recoveries over time, in the terminal or as a picture"
MAX_LOG_BYTES = 16 * 2**20
MAX_LOG_LINES = 200_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write a picture: .png, .svg or .pdf (needs matplotlib)"
    )
    parser.add_argument("--from-logs", action="store_true", help="also read losses from log lines that name a step and a loss")


def run(context: Context, options: argparse.Namespace) -> int:
    """Draws it."""
    job = context.job(options.name)
    lines: list[str] = []
    if options.from_logs:
        found = read_logs(context.cluster, job, Choice(), limit_bytes=MAX_LOG_BYTES)
        lines = [f"{line.at} {line.text}" for line in itertools.islice(found, MAX_LOG_LINES)]
    series = gather(job, context.turns(job), lines, context.now())
    if options.output is None:
        context.console.print(draw_plot(job, series, context.console.width), soft_wrap=True)
        return 0
    # Imported late: matplotlib is an extra, and slow to come.
    from elastic_pytorch_client.views.figure import save_figure  # noqa: PLC0415

    save_figure(job, series, options.output)
    context.console.print(f"{options.output}", highlight=False)
    return 0
