"""The pod template, without the needs of the old operator, and with the new one's labels."""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration.job_metadata import set_fields
from elastic_pytorch_client.migration.launch import Launch
from elastic_pytorch_client.migration.process_variables import SET_FOR_PROCESSES
from elastic_pytorch_client.migration.remarks import Remarks
from elastic_pytorch_client.reading.nodes import requests_of

Manifest = dict[str, Any]

NAMED = "the operator names the workers' hosts `JOB-worker-N`"
DROPPED = {
    "hostname": NAMED,
    "subdomain": NAMED,
    "activeDeadlineSeconds": ("it limits each pod; spec.activeDeadlineSeconds limits the job"),
}
OLD_PORTS = {"pytorchjob-port"}
ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
LABELS = {
    "training.kubeflow.org/job-name": names.LABEL_JOB_NAME,
    "training.kubeflow.org/replica-index": names.LABEL_WORKER_INDEX,
    "jobset.sigs.k8s.io/jobset-name": names.LABEL_JOB_NAME,
    "batch.kubernetes.io/job-completion-index": names.LABEL_WORKER_INDEX,
    "batch.kubernetes.io/job-name": names.LABEL_JOB_NAME,
    "volcano.sh/job-name": names.LABEL_JOB_NAME,
    "job-name": names.LABEL_JOB_NAME,
}
LABEL_FIELD = re.compile(r"metadata\.(?:labels|annotations)\['([^']+)'\]\Z")
OLD_LABELS = (
    *("training.kubeflow.org/", "trainer.kubeflow.org/", "jobset.sigs.k8s.io/"),
    *("batch.kubernetes.io/", "volcano.sh/"),
)
OLDEST_FOR_ARGS, OLDEST_FOR_COMMANDS = (2, 4), (2, 6)
# PyTorch's own images, whose tags begin with torch's release.
PYTORCH = re.compile(r"(?:docker\.io/|ghcr\.io/)?pytorch/pytorch:(\d+)\.(\d+)(?![\d])")
# NVIDIA's images by year and month, and the first ones with such a torch.
NVIDIA = re.compile(r"nvcr\.io/nvidia/pytorch:(\d\d)\.(\d\d)-")
FIRST_OF_NVIDIA = {OLDEST_FOR_ARGS: (24, 5), OLDEST_FOR_COMMANDS: (24, 11)}


def clean_template(path: str, template: Mapping[str, Any], remarks: Remarks) -> Manifest:
    """A copy of a template without the operator's fields, whose selectors find the new pods."""
    given = copy.deepcopy(template.get("metadata") or {})
    labels = given.get("labels") or {}
    for label in [label for label in labels if label.startswith((*OLD_LABELS, f"{names.GROUP}/"))]:
        del labels[label]
        remarks.drop(f"{path}.metadata.labels[{label}]", "it is an operator's own label")
    metadata = set_fields({"labels": labels, "annotations": given.get("annotations")})
    spec = copy.deepcopy(dict(template.get("spec") or {}))
    remarks.drop_set(f"{path}.spec", spec, DROPPED)
    for field in ("restartPolicy", *DROPPED):
        spec.pop(field, None)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account and "automountServiceAccountToken" not in spec:
        # As it was: here, pods get no token by default.
        spec["automountServiceAccountToken"] = True
    for field in ("affinity", "topologySpreadConstraints"):
        for selector in _mappings(spec.get(field)):
            _relabel(f"{path}.spec.{field}", selector, labels, remarks)
    for field in ("containers", "initContainers", "volumes"):
        for item in spec.get(field) or ():
            for part in _mappings(item):
                _repoint(f"{path}.spec.{field}[{item.get('name')}]", part, remarks)
    return {**set_fields({"metadata": metadata}), "spec": spec}


def set_launch(path: str, container: Manifest, launch: Launch, remarks: Remarks) -> None:
    """Has a container start training as the agent does, under the operator's name for it."""
    container["name"] = names.TRAINING_CONTAINER
    for field, words in (("command", launch.command), ("args", launch.args)):
        container.pop(field, None)
        if words:
            container[field] = list(words)
    for text in launch.remarks:
        remarks.add(f"{path}.command", text)
    if said := too_old(str(container.get("image", "")), command=bool(launch.command)):
        remarks.add(f"{path}.image", said)
    given = container.pop("ports", None) or ()
    ports = [port for port in given if port.get("name") not in OLD_PORTS]
    if len(ports) < len(given):
        remarks.add(
            f"{path}.ports",
            "pytorchjob-port is dropped: `spec.rendezvous.port` of the job sets the port, if one "
            "is needed",
        )
    if ports:
        container["ports"] = ports
    env = container.get("env") or []
    set_already = any(variable.get("name") == "PYTHONUNBUFFERED" for variable in env)
    if launch.unbuffered and not set_already:
        container["env"] = [*env, {"name": "PYTHONUNBUFFERED", "value": "1"}]
    first = ("name", "image", "imagePullPolicy", "command", "args")
    ordered = {key: container[key] for key in first if key in container} | container
    container.clear()
    container.update(ordered)


def take_variables(path: str, container: Manifest, remarks: Remarks) -> dict[str, str]:
    """Drops the operator's and the agent's variables.

    Returns:
        The values of torchrun's options that the spec still has, by the options' names.
    """
    kept, taken, dropped = [], {}, []
    for variable in container.pop("env", None) or ():
        name = str(variable.get("name", ""))
        if name == "PET_MAX_RESTARTS" and "value" in variable:
            taken["max-restarts"] = str(variable["value"])
        elif name in SET_FOR_PROCESSES:
            dropped.append(name)
        else:
            kept.append(variable)
    if dropped:
        why = "dropped, for the operator and the agent set them for each group"
        remarks.add(f"{path}.env", f"{', '.join(dropped)}: {why}")
    if kept:
        container["env"] = kept
    return taken


def requested(container: Mapping[str, Any]) -> dict[str, float]:
    return requests_of({"spec": {"containers": [container]}})


def accelerators(container: Mapping[str, Any]) -> int:
    wanted = requested(container)
    return sum(int(wanted.get(name, 0)) for name in ACCELERATORS)


def _mappings(part: Any) -> Iterator[Manifest]:
    """The mappings in a part of a template, without variables that are dropped anyway."""
    if isinstance(part, dict) and str(part.get("name")) not in SET_FOR_PROCESSES:
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _mappings(inner)


def _relabel(path: str, selector: Manifest, own: Mapping[str, str], remarks: Remarks) -> None:
    def renamed(label: str) -> str:
        return label if label in own else _new_label(path, "selects by", label, remarks)

    if isinstance(labels := selector.get("matchLabels"), dict):
        selector["matchLabels"] = {renamed(label): wanted for label, wanted in labels.items()}
    if isinstance(label := selector.get("key"), str):
        selector["key"] = renamed(label)


def _repoint(path: str, part: Manifest, remarks: Remarks) -> None:
    field = part.get("fieldPath")
    found = LABEL_FIELD.match(field) if isinstance(field, str) else None
    if found and (new := _new_label(path, "reads", found[1], remarks)) != found[1]:
        part["fieldPath"] = f"metadata.labels['{new}']"


def _new_label(path: str, verb: str, label: str, remarks: Remarks) -> str:
    new = LABELS.get(label, label)
    if new != label:
        counts = (
            ": the new one counts all workers from 0" if new == names.LABEL_WORKER_INDEX else ""
        )
        remarks.add(path, f"{verb} the label {new} now, instead of {label}{counts}")
    elif label.startswith(OLD_LABELS):
        lack = f"which worker pods do not have: compare {names.LABEL_JOB_NAME}"
        remarks.add(path, f"{verb} {label}, {lack}")
    return new


def too_old(image: str, *, command: bool) -> str:
    """The remark on an image with too old a torch; empty: it has not, or its tag does not say."""
    needed = OLDEST_FOR_COMMANDS if command else OLDEST_FOR_ARGS
    wanted = f"torch {needed[0]}.{needed[1]} or newer, and Python 3.10 or newer"
    why = "a command that calls torchrun needs" if command else "workers need"
    if (found := PYTORCH.match(image)) and (int(found[1]), int(found[2])) < needed:
        return f"has torch {found[1]}.{found[2]}: {why} {wanted}"
    if found := NVIDIA.match(image):
        year, month = FIRST_OF_NVIDIA[needed]
        if (int(found[1]), int(found[2])) < (year, month):
            since = f"as NVIDIA's images have since {year}.{month:02}"
            return f"has a torch that is too old: {why} {wanted}, {since}"
    return ""
