"""What users can do about the reason of a condition. Pure."""

import re

from elastic_pytorch_client.reading.job_view import JobView

_AGAIN = (
    "then delete the job and create it again: it continues from its checkpoint if the script "
    "loads one"
)
_CORRECT = "Correct the script"
# In its place, by the words of the root cause: torch reports a device's memory, and the kernel or
# Python that of the container.
_CORRECT_MEMORY = {
    re.compile(
        r"(CUDA|HIP|XPU|NPU|MPS) .{0,40}out of memory|torch\S*\.OutOfMemoryError", re.IGNORECASE
    ): (
        "Have the script use less of the device's memory, with a smaller micro-batch or a sharded "
        "model"
    ),
    re.compile(
        r"OOMKilled|container is out of memory|^MemoryError\b"
        r"|DefaultCPUAllocator: .*allocate memory",
        re.MULTILINE,
    ): "Raise the container's memory limit in spec.template, or have the script use less",
}

_OF_FAILED = {
    "TooManyFailures": f"{_CORRECT}, {_AGAIN}.",
    "BackoffLimitExceeded": f"{_CORRECT}, or raise failurePolicy.backoffLimit, {_AGAIN}.",
    "FailurePolicyRule": (
        "A rule of failurePolicy.rules fails the job after such a failure. Correct the cause or "
        f"the rule, {_AGAIN}."
    ),
    "InvalidTemplate": (
        "Correct the template as the message says, then delete the job and create it again."
    ),
    "NeverJoined": (
        "Write the script into args and remove the command, or start it with torchrun. Then "
        "create the job again."
    ),
    "CannotStart": (
        "Correct the image, the command or what the container refers to in spec.template. Then "
        "create the job again."
    ),
    "PodLost": (
        "failurePolicy.onPodLoss is FailJob, so the loss of a worker fails the job. With Replace, "
        "the group continues without it."
    ),
    "DeadlineExceeded": f"Raise activeDeadlineSeconds, {_AGAIN}.",
    "LastCheckpointNotWritten": (
        "Free or repair the volume or bucket of the checkpoints, or raise saveDeadlineSeconds, "
        f"{_AGAIN}."
    ),
}

OF_A_WAIT = {  # by the reason of the condition Running or Degraded
    "ScheduleTimeout": (
        "Free resources, or add a node. Other jobs can use these nodes now, and this job retries "
        "later."
    ),
    "QuotaRequested": "Check that Kueue runs:\n  kubectl get deployments -n kueue-system",
    "WaitingForQuota": (
        "It passes when the queue has quota. What it is used for:\n"
        "  kubectl get workloads.kueue.x-k8s.io -n {namespace}"
    ),
    "Evicted": "The workers save and stop, and the job waits in its queue.",
    "LeavingQueue": (
        "It passes when the pods are gone: the job then waits in the queue of its label, or "
        "starts without a queue."
    ),
    "TemplateMissing": (
        "The operator looks for it every 30 s. Who may read templates finds their names by:\n"
        "  kubectl get cepjt"
    ),
    "InvalidSpec": (
        "Correct the field of spec that the message names. A job that runs goes on by its last "
        "valid spec until then."
    ),
    "FieldsIgnored": (
        "Remove them the next time that the job is suspended or created: until then they change "
        "nothing."
    ),
    "KueueDisabled": (
        "Set kueue.enabled in the operator's chart, or remove the label kueue.x-k8s.io/queue-name "
        "from the job."
    ),
}


def advise_on_failure(job: JobView, reason: str) -> str:
    advice = _OF_FAILED.get(reason, f"Read the message, {_AGAIN}.")
    if (cause := job.root_cause) is None:
        return advice
    remedies = (do for words, do in _CORRECT_MEMORY.items() if words.search(cause.message))
    advice = advice.replace(_CORRECT, next(remedies, _CORRECT))
    where = f"It failed in {cause.where}. The end of that worker's log:"
    return f"{advice} {where}\n  kubectl logs -n {job.namespace} {cause.worker} --tail=50"
