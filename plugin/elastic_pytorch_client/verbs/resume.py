"""`kubectl epj resume NAME`: a suspended job goes on from its checkpoint."""

import argparse

from elastic_pytorch_client.verbs.context import Context, add_name, add_wait

NAME, HELP = "resume", "resume a suspended job from its checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    add_wait(parser, "all wanted workers train")


def run(context: Context, options: argparse.Namespace) -> int:
    """Lets it go on."""
    name = options.name
    context.cluster.patch_job(context.one_namespace, name, {"spec": {"suspend": False}})
    context.console.print(f"{name}: resumed; its workers start", highlight=False)
    if options.wait:
        job = context.wait(name, lambda job: job.seen and job.at_wanted_size, "all wanted workers trained", options.timeout)
        context.console.print(f"{name}: {job.size} workers train in round {job.round}", highlight=False)
    return 0
