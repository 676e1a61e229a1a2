"""`kubectl epj list`: the jobs of a namespace, or of all."""

import argparse

from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_client.verbs.context import Context
from elastic_pytorch_client.views.list_view import show_list

NAME, HELP = "list", "the jobs of a namespace, one line each"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")


def run(context: Context, options: argparse.Namespace) -> int:
    """Shows them."""
    jobs = [view_job(job) for job in context.cluster.list_jobs(context.namespace)]
    if not jobs:
        where = "" if context.namespace is None else f' in namespace "{context.namespace}"'
        context.console.print(f"There are no ElasticPyTorchJobs{where}.", highlight=False)
        return 0
    jobs.sort(key=lambda job: (job.namespace, job.name))
    context.console.print(show_list(jobs, context.now(), namespaces=context.namespace is None), crop=False)
    return 0
