"""What to do about a job that has failed, by the reason of its Failed condition."""

from elastic_pytorch_client.job_view import JobView

AGAIN = "then create the job again: it goes on from its checkpoint if the script loads one"

_ADVICE = {
    "TooManyFailures": f"Correct the script, {AGAIN}.",
    "InvalidTemplate": "Correct spec.template as the message says, and create the job again.",
    "InvalidSpec": "Correct the spec as the message says, and create the job again.",
    "NeverJoined": "Name the script in args, without a command, or start it by torchrun, and create the job again.",
    "CannotStart": "Correct the image, the command or what the container refers to in spec.template, and create the job again.",
    "PodLost": "failurePolicy.onPodLoss is FailJob, so the loss of a worker ends the job. Replace would go on without it.",
    "DeadlineExceeded": f"Give it a longer activeDeadlineSeconds, {AGAIN}.",
}


def advise_on_end(job: JobView, reason: str) -> str:
    """A sentence, and a command to read more."""
    advice = _ADVICE.get(reason, f"Read the message, {AGAIN}.")
    if (cause := job.root_cause) is not None:
        where = f"It failed in {cause.where}. What that worker said:"
        return f"{advice} {where}\n  kubectl logs -n {job.namespace} {cause.worker} --tail=50"
    return advice
