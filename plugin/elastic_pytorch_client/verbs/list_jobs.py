"""`kubectl epj list`: the jobs of a namespace, or of all."""

import argparse

from elastic_pytorch_client import names
from elastic_pytorch_client.cluster import Object
from elastic_pytorch_client.manifest import shown_manifest
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_client.verbs.context import (
    Context,
    add_all_namespaces,
    add_output,
    print_data,
)
from elastic_pytorch_client.views.list_view import show_list

NAME, HELP = "list", "the jobs of a namespace, one line each"
EXAMPLES = ("-A", "-l team=nlp", "-o wide")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_all_namespaces(parser)
    parser.add_argument(
        "-l",
        "--selector",
        default="",
        help="only jobs with these labels, such as team=nlp,tier!=test",
    )
    add_output(parser, "name", "wide")


def run(context: Context, options: argparse.Namespace) -> int:
    found = sorted(context.cluster.list_jobs(context.namespace, options.selector), key=_place)
    if options.output in ("json", "yaml"):
        items = list(map(shown_manifest, found))
        print_data(context, options.output, {"apiVersion": "v1", "kind": "List", "items": items})
        return 0
    jobs = [view_job(job) for job in found]
    if options.output == "name":
        for job in jobs:
            name = f"{names.KIND.lower()}.{names.GROUP}/{job.name}"
            context.console.print(name, soft_wrap=True)
        return 0
    if not jobs:
        where = "" if context.namespace is None else f' in namespace "{context.namespace}"'
        context.console.print(f"There are no ElasticPyTorchJobs{where}.")
        return 0
    namespaces, wide = context.namespace is None, options.output == "wide"
    table = show_list(jobs, context.now(), namespaces=namespaces, wide=wide)
    context.console.print(table, crop=False)
    return 0


def _place(job: Object) -> tuple[str, str]:
    return str(job["metadata"].get("namespace", "")), str(job["metadata"]["name"])
