"""`spec.scheduling.extraWorkers`: the workers beyond the minimum may run on other nodes than the first ones, such as spot nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.fields import InvalidJob, read_object

PATH = "spec.scheduling.extraWorkers"
FIELDS = ("nodeSelector", "tolerations", "priorityClassName")


@dataclass(frozen=True, slots=True)
class ExtraWorkers:
    """What the pods of workers with an index from `minReplicas` on have that the template does not say.

    Attributes:
        node_selector: labels of their nodes. A label that the template has, too, has this value.
        tolerations: in addition to the template's.
        priority_class: of the pods; empty: the template's.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Manifest, ...] = ()
    priority_class: str = ""

    def applied_to(self, template: Manifest) -> Manifest:
        """The template of these pods."""
        spec: dict[str, Any] = {**template["spec"]}
        if self.node_selector:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **self.node_selector}
        if self.tolerations:
            spec["tolerations"] = [*(spec.get("tolerations") or []), *self.tolerations]
        if self.priority_class:
            spec["priorityClassName"] = self.priority_class
        return {**template, "spec": spec}


def read_extra_workers(spec: Mapping[str, Any], scheduling: Mapping[str, Any], kueue_queue: str) -> ExtraWorkers | None:
    """Reads how the workers beyond the minimum are scheduled; None: as all others.

    Args:
        spec: of the job.
        scheduling: its part.
        kueue_queue: in which the job waits for quota of Kueue; empty: in none.

    Raises:
        InvalidJob: it is of the wrong form, or no worker is beyond the minimum.
    """
    if scheduling.get("extraWorkers") is None:
        return None
    fields = read_object(scheduling, "extraWorkers", "spec.scheduling")
    if spec.get("minReplicas") is None:
        raise InvalidJob(PATH, "may not be set while minReplicas is unset: set spec.minReplicas to make the job elastic")
    if kueue_queue:
        problem = f"may not be set together with the label {kueue.LABEL_QUEUE}: the flavors of the queue choose the nodes"
        raise InvalidJob(PATH, f"{problem}; remove extraWorkers, or the label")
    if unknown := fields.keys() - {*FIELDS}:
        raise InvalidJob(f"{PATH}.{min(unknown)}", f"is not known here: set {', '.join(FIELDS)}")
    selector, tolerations = read_object(fields, "nodeSelector", PATH), fields.get("tolerations") or []
    for key, value in selector.items():
        if not isinstance(value, str):
            raise InvalidJob(f"{PATH}.nodeSelector", f"must have strings as values: quote {value!r}, that of {key!r}")
    if not isinstance(tolerations, list) or not all(isinstance(toleration, Mapping) for toleration in tolerations):
        raise InvalidJob(f"{PATH}.tolerations", "must be a list of objects")
    priority_class = fields.get("priorityClassName") or ""
    if not isinstance(priority_class, str):
        raise InvalidJob(f"{PATH}.priorityClassName", f"must be the name of a PriorityClass, not {priority_class!r}")
    return ExtraWorkers(dict(selector), tuple(tolerations), priority_class)
