"""What is left to do for a job that has ended: its agents exit by themselves, what stays is deleted as the policies say."""

from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.actions import Action, DeleteJob, DeletePod
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.spec.job import Job

EXIT_SECONDS = 10.0  # what agents get to exit by themselves once the job has ended


def clean_up(job: Job, observed: Observed, ended_at: float) -> tuple[list[Action], float | None]:
    """Decides which pods of an ended job go, and whether the job itself does.

    Returns:
        What to do; and when to look again.
    """
    recheck = None
    if job.ttl_seconds is not None:
        left = job.ttl_seconds - seconds_between(str(job.status.get("completionTime", observed.time)), observed.time)
        if left <= 0:
            return [DeleteJob()], None
        recheck = observed.now + left
    actions: list[Action] = []
    for pod in observed.pods:
        if pod.deleting:
            continue
        if pod.ended:
            if job.clean_pod_policy == "All" or (job.clean_pod_policy == "Running" and pod.lingers):
                actions.append(DeletePod(pod.name, pod.uid, "the job has ended"))
        elif not pod.started and pod.name not in observed.agents:
            actions.append(DeletePod(pod.name, pod.uid, "the job has ended before it started"))
        elif observed.now < ended_at + EXIT_SECONDS:
            recheck = min(recheck or ended_at + EXIT_SECONDS, ended_at + EXIT_SECONDS)
        elif job.clean_pod_policy != "None":
            actions.append(DeletePod(pod.name, pod.uid, "the job has ended"))
    return actions, recheck
