"""`spec.scheduling`: the gang that a job's pods form, how long places are held below the minimum, and whether autoscalers may take one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.gang_schedulers import GANG_SCHEDULERS, GangScheduler, Queueing
from elastic_pytorch_operator.spec.fields import InvalidJob, read_integer, read_object

PATH = "spec.scheduling"
ALLOW, FORBID = "Allow", "Forbid"  # disruption


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How a job's pods are scheduled.

    Attributes:
        gang: the scheduler for which a PodGroup is made; None: no PodGroup is.
        queue: of that scheduler; empty: its default one, or it has none.
        timeout_seconds: how long the job holds places for fewer workers than its minimum; None: without limit.
        disruption: whether an autoscaler may take a worker's node away to save cost.
    """

    gang: GangScheduler | None = None
    queue: str = ""
    timeout_seconds: int | None = None
    disruption: str = FORBID


NO_SCHEDULING = Scheduling()


def read_scheduling(spec: Mapping[str, Any], *, kueue_queue: str = "") -> Scheduling:
    """Reads how a job's pods are scheduled.

    Args:
        spec: of the job.
        kueue_queue: in which the job waits for quota of Kueue; empty: in none.

    Raises:
        InvalidJob: a field is unknown to every scheduler, or does not go with the others.
    """
    fields = read_object(spec, "scheduling")
    name, queue = fields.get("podGroup"), fields.get("queue") or ""
    if name is not None and (not isinstance(name, str) or name not in GANG_SCHEDULERS):
        raise InvalidJob(f"{PATH}.podGroup", f"must be one of {', '.join(GANG_SCHEDULERS)}, not {name!r}")
    if not isinstance(queue, str):
        raise InvalidJob(f"{PATH}.queue", f"must be the name of a queue, not {queue!r}")
    gang = GANG_SCHEDULERS[name] if name is not None else None
    if gang is not None and kueue_queue:
        problem = (
            f"may not be set together with the label {kueue.LABEL_QUEUE}: Kueue admits the minimum as a whole already; "
            "remove podGroup, or the label"
        )
        raise InvalidJob(f"{PATH}.podGroup", problem)
    if queue and (gang is None or gang.queueing is Queueing.NONE):
        problem = "may not be set unless podGroup is volcano or kai; a queue of Kueue is named by a label of the job"
        raise InvalidJob(f"{PATH}.queue", problem)
    if gang is not None and gang.queueing is Queueing.REQUIRED and not queue:
        raise InvalidJob(f"{PATH}.queue", f"must be set with podGroup {gang.name}: it schedules no PodGroup without a queue")
    timeout_seconds = read_integer(fields, "scheduleTimeoutSeconds", None, PATH)
    # An elastic job trains on without a worker; one of a fixed size stops.
    disruption = fields.get("disruption") or (FORBID if spec.get("minReplicas") is None else ALLOW)
    if disruption not in (ALLOW, FORBID):
        raise InvalidJob(f"{PATH}.disruption", f"must be {ALLOW} or {FORBID}, not {disruption}")
    return Scheduling(gang, queue, timeout_seconds, disruption)
