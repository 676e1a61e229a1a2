"""`kubectl epj suspend NAME`: the workers save and stop, the job stays."""

import argparse

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.verbs.context import Context, add_name, add_wait

NAME, HELP = "suspend", "let a job's workers save and stop; the job stays"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    add_wait(parser, "no worker runs")


def run(context: Context, options: argparse.Namespace) -> int:
    """Stops them."""
    name = options.name
    context.cluster.patch_job(context.one_namespace, name, {"spec": {"suspend": True}})
    context.console.print(f"{name}: its workers save and stop", highlight=False)
    if options.wait:
        context.wait(name, has_stopped, "all its workers had stopped", options.timeout)
        context.console.print(f"{name}: no worker runs any more", highlight=False)
    return 0


def has_stopped(job: JobView) -> bool:
    """Whether the operator has seen the suspension, and no pod of the job is left."""
    return job.seen and job.holds("Suspended")
