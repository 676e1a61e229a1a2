"""`kubectl epj checkpoints NAME`: what checkpoints a job has, as one of its workers lists them."""

import argparse
import json

from elastic_pytorch_client.cluster import is_running, training_container
from elastic_pytorch_client.errors import EpjError, NotFound
from elastic_pytorch_client.reading.checkpoints import read_folders
from elastic_pytorch_client.reading.job_view import JobView, Worker
from elastic_pytorch_client.training_processes import container_command
from elastic_pytorch_client.verbs.context import Context, add_name, add_output, print_data
from elastic_pytorch_client.views.checkpoint_table import show_folders
from elastic_pytorch_client.worker_logs import Choice, find_workers

NAME, HELP = "checkpoints", "the checkpoints of a job: step, size, age and place, as one of its workers lists them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    add_output(parser)


def run(context: Context, options: argparse.Namespace) -> int:
    """Lists them; 1 if a place cannot be listed."""
    job = context.job(options.name)
    worker, told = _ask(context, job)
    try:
        folders = read_folders(told)
    except ValueError as error:
        raise EpjError(f"pod {worker.name} does not list checkpoints as this release does: {error}") from error
    if not folders:
        raise NotFound(
            f"no process of pod {worker.name} has told where checkpoints are: the training library's State does so, if it has a folder. "
            f"{_last_report(job)}"
        )
    if options.output:
        about = {"namespace": job.namespace, "job": job.name, "worker": worker.name}
        print_data(context, options.output, {**about, "reportedStep": job.progress.checkpoint_step, "places": json.loads(told)})
    else:
        context.console.print(show_folders(folders, context.now()), crop=False)
    return 1 if any(folder.trouble for folder in folders) else 0


def _ask(context: Context, job: JobView) -> tuple[Worker, str]:
    """Has the worker of the lowest rank list them, as rank 0 writes them, with the credentials of its pod."""
    pods = {str(pod["metadata"]["name"]): pod for pod in context.cluster.list_pods(job.namespace, job.name) if is_running(pod)}
    worker = next((each for each in Choice().of(find_workers(context.cluster, job, Choice())) if each.name in pods), None)
    if worker is None:
        raise NotFound(f"no worker of {job.name} runs, and only a worker can list its checkpoints. {_last_report(job)}")
    container = training_container(pods[worker.name])
    return worker, context.cluster.run_in_pod(job.namespace, worker.name, container, container_command(NAME))


def _last_report(job: JobView) -> str:
    step = job.progress.checkpoint_step
    return "The job has reported no checkpoint" if step is None else f"The last one that the job has reported is of step {step}"
