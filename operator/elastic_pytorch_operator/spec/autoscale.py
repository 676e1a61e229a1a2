"""`resizePolicy.autoscale`: whether the operator gives back the workers that do not help, and what counts as help."""

from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.spec.fields import InvalidJob, read_number, read_object
from elastic_pytorch_operator.spec.sizes import Sizes

PATH = "spec.resizePolicy.autoscale"
DEFAULT_EFFICIENCY = 0.7
LEAST_EFFICIENCY, MOST_EFFICIENCY = 0.1, 0.95


def read_min_efficiency(spec: Mapping[str, Any], sizes: Sizes, *, stock: bool) -> float | None:
    """Reads `autoscale.minEfficiency`; None: the job is not autoscaled.

    Args:
        spec: of the job.
        sizes: of the job.
        stock: stock torchrun forms the group, and reports nothing.

    Raises:
        InvalidJob: it is out of bounds, or the job cannot be autoscaled.
    """
    autoscale = read_object(spec, "resizePolicy").get("autoscale")
    if autoscale is None:
        return None
    if stock:
        raise InvalidJob(PATH, "may not be set unless rendezvous.backend is operator: stock torchrun reports no samples")
    if spec.get("minReplicas") is None or sizes.maximum == sizes.minimum == spec.get("maxReplicas"):
        raise InvalidJob(PATH, "may not be set unless minReplicas is less than maxReplicas: there is no other size to choose")
    if not isinstance(autoscale, Mapping):
        raise InvalidJob(PATH, "must be an object, such as {minEfficiency: 0.7}")
    return read_number(autoscale, "minEfficiency", DEFAULT_EFFICIENCY, PATH, least=LEAST_EFFICIENCY, most=MOST_EFFICIENCY)
