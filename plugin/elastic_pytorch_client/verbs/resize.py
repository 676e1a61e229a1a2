"""`kubectl epj resize NAME N`: another number of workers."""

import argparse

from elastic_pytorch_client.verbs.context import Context, add_name, add_wait

NAME, HELP = "resize", "change the number of workers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    parser.add_argument("replicas", metavar="N", type=int, help="the number of workers, from minReplicas to maxReplicas")
    add_wait(parser, "all N workers train")


def run(context: Context, options: argparse.Namespace) -> int:
    name, replicas = options.name, options.replicas
    before = context.job(name)
    context.cluster.scale_job(context.one_namespace, name, replicas)
    context.console.print(f"{name}: {before.wanted} -> {replicas} workers wanted", highlight=False)
    if options.wait:
        what = f"all {replicas} workers trained"
        job = context.wait(name, lambda job: job.seen and job.at_wanted_size, what, options.timeout)
        context.console.print(f"{name}: {job.size} workers train in round {job.round}", highlight=False)
    return 0
