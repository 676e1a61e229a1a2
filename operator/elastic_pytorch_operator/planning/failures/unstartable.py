"""A job that will never start as it is written: its containers cannot even be created."""

from collections.abc import Sequence

from elastic_pytorch_operator.model.observed import PodView

GIVE_UP_SECONDS = 300.0  # registries and webhooks may fail for minutes; a missing image stays missing


def why_it_cannot_start(pods: Sequence[PodView], now: float) -> tuple[str, float | None]:
    """Returns why none of a job's pods will ever start.

    Args:
        pods: of a job that has never had a round.
        now: monotonic seconds.

    Returns:
        The reason, for people, empty while one may still start; and when to look again.
    """
    waiting = [pod for pod in pods if not pod.ended and not pod.deleting]
    if not waiting or any(pod.started or not pod.stuck for pod in waiting):
        return "", None
    first = min(waiting, key=lambda pod: (pod.stuck_since, pod.created_at))
    hopeless_at = first.stuck_since + GIVE_UP_SECONDS
    if now < hopeless_at and not any(pod.hopeless for pod in waiting):
        return "", hopeless_at
    return f"no worker can start: {first.waiting}; correct spec.template and create the job again", None
