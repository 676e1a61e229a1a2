"""`kubectl epj exec NAME --rank N -- COMMAND`: a command in the pod that has a rank now, by kubectl itself."""

import argparse
import subprocess

from elastic_pytorch_client.cluster import is_running, training_container
from elastic_pytorch_client.errors import EpjError, NotFound
from elastic_pytorch_client.verbs.context import Context, add_name
from elastic_pytorch_client.verbs.logs import no_such_worker
from elastic_pytorch_client.worker_logs import Choice, find_workers

NAME, HELP = "exec", "run a command in the training container of the worker that has a rank"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--rank", type=int, metavar="N", help="the worker that has this rank now")
    who.add_argument("--index", type=int, metavar="N", help="the worker with this index")
    parser.add_argument("-i", "--stdin", action="store_true", help="pass stdin to the command")
    parser.add_argument("-t", "--tty", action="store_true", help="stdin is a terminal")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after `--`: the command with its arguments")


def run(context: Context, options: argparse.Namespace) -> int:
    """Runs it; returns its exit code."""
    ranks, indexes = ([] if number is None else [number] for number in (options.rank, options.index))
    choice = Choice(frozenset(ranks), frozenset(indexes))
    job = find_workers(context.cluster, context.job(options.name), choice)
    pods = context.cluster.list_pods(job.namespace, job.name, indexes)
    running = {str(found["metadata"]["name"]): found for found in pods if is_running(found)}
    pod = next((worker.name for worker in choice.of(job) if worker.name in running), None)
    if pod is None:
        raise NotFound(no_such_worker(job, ranks, indexes))
    access = [f"--{name}={value}" for name in ("kubeconfig", "context") if (value := getattr(options, name))]
    streams = [*(["--stdin"] if options.stdin else []), *(["--tty"] if options.tty else [])]
    where = [pod, f"--namespace={job.namespace}", f"--container={training_container(running[pod])}"]
    try:
        return subprocess.call(["kubectl", *access, "exec", *streams, *where, "--", *options.command])
    except FileNotFoundError as error:
        raise EpjError("exec needs kubectl, which is not on the PATH") from error
