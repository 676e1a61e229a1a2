"""What to do about a job that has failed, by the reason of its Failed condition."""

from elastic_pytorch_client.reading.job_view import JobView

AGAIN = "then delete the job and create it again: it continues from its checkpoint if the script loads one"

_ADVICE = {
    "TooManyFailures": f"Correct the script, {AGAIN}.",
    "BackoffLimitExceeded": f"Correct the script, or raise failurePolicy.backoffLimit, {AGAIN}.",
    "FailurePolicyRule": f"A rule of failurePolicy.rules fails the job after such a failure. Correct the cause or the rule, {AGAIN}.",
    "InvalidTemplate": "Correct the template as the message says, then delete the job and create it again.",
    "InvalidSpec": "Correct the spec as the message says, then delete the job and create it again.",
    "NeverJoined": "Write the script into args and remove the command, or start it with torchrun. Then create the job again.",
    "CannotStart": "Correct the image, the command or what the container refers to in spec.template. Then create the job again.",
    "PodLost": "failurePolicy.onPodLoss is FailJob, so the loss of a worker fails the job. With Replace, the group continues without it.",
    "DeadlineExceeded": f"Raise activeDeadlineSeconds, {AGAIN}.",
}


def advise_on_end(job: JobView, reason: str) -> str:
    """A sentence, and a command to read more."""
    advice = _ADVICE.get(reason, f"Read the message, {AGAIN}.")
    if (cause := job.root_cause) is not None:
        where = f"It failed in {cause.where}. The end of that worker's log:"
        return f"{advice} {where}\n  kubectl logs -n {job.namespace} {cause.worker} --tail=50"
    return advice
