"""Whether a dry run asks the API server about a job's worker pods before the first is created. Pure."""

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failed_writes import DRY_RUN, FailedWrites
from elastic_pytorch_operator.spec.job import Job


def wants_dry_run(job: Job, observed: Observed, asked_generation: int, failed: FailedWrites) -> bool:
    """Whether to ask: until there is an answer, once for each generation of a job that has never begun, or has no pod while suspended.

    The template of a suspended job may have changed. The status remembers the answer for the next leader: it has seen this generation,
    and its `Suspended` condition says whether what the job needs was refused.

    Args:
        job: with its status.
        observed: its pods and its round.
        asked_generation: the generation that this operator has asked about and that was not refused; 0: none.
        failed: the writes that have failed.
    """
    begun = observed.round is not None or job.status.get("round")
    if observed.pods or (begun and not job.suspend) or asked_generation == job.generation:
        return False
    if DRY_RUN in failed or job.status.get("observedGeneration") != job.generation:
        return True
    return (find_condition(job.status, names.SUSPENDED) or {}).get("reason") == names.REFUSED
