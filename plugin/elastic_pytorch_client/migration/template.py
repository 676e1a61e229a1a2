"""The pod template, without the needs of the old operator, and with the new one's labels."""

import copy
import re
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration.launch import Launch
from elastic_pytorch_client.migration.process_variables import is_set_for_processes
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks

Manifest = dict[str, Any]

KEPT_METADATA = ("labels", "annotations")
OF_THE_OPERATOR = ("restartPolicy", "hostname", "subdomain")
OLD_PORTS = {"pytorchjob-port"}
ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
LABELS = {
    "training.kubeflow.org/job-name": names.LABEL_JOB_NAME,
    "training.kubeflow.org/replica-index": f"{names.GROUP}/worker-index",
    "jobset.sigs.k8s.io/jobset-name": names.LABEL_JOB_NAME,
    "batch.kubernetes.io/job-completion-index": f"{names.GROUP}/worker-index",
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


def find_training_container(path: str, pod: Mapping[str, Any], name: str) -> tuple[int, Manifest]:
    """The training container and its index: that of a name, or the only one."""
    containers = pod.get("containers") or []
    named = (place for place, each in enumerate(containers) if each.get("name") == name)
    found = next(named, 0 if len(containers) == 1 else None)
    if found is None:
        text = f"has none that is named `{name}`: which one trains is not known"
        raise CannotMigrate(f"{path}.spec.containers", text)
    return found, containers[found]


def clean_template(path: str, template: Mapping[str, Any], remarks: Remarks) -> Manifest:
    """A copy of a template without the operator's fields, whose selectors find the new pods."""
    kept = (template.get("metadata") or {}).items()
    metadata = {key: value for key, value in kept if key in KEPT_METADATA and value}
    metadata = copy.deepcopy(metadata)
    labels = metadata.get("labels") or {}
    for label in [label for label in labels if label.startswith((*OLD_LABELS, f"{names.GROUP}/"))]:
        del labels[label]
        remarks.add(f"{path}.metadata.labels[{label}]", "is dropped: it is an operator's own label")
    if not labels:
        metadata.pop("labels", None)
    spec = copy.deepcopy(dict(template.get("spec") or {}))
    for field in OF_THE_OPERATOR:
        if spec.pop(field, None) and field != "restartPolicy":
            text = "is dropped: the operator names the workers' hosts `JOB-worker-N`"
            remarks.add(f"{path}.spec.{field}", text)
    if spec.pop("activeDeadlineSeconds", None):
        text = "is dropped: it limits each pod; spec.activeDeadlineSeconds limits the job"
        remarks.add(f"{path}.spec.activeDeadlineSeconds", text)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account and "automountServiceAccountToken" not in spec:
        # As it was: here, pods get no token by default.
        spec["automountServiceAccountToken"] = True
    for part in ("affinity", "topologySpreadConstraints"):
        if part in spec:
            spec[part] = _relabel(f"{path}.spec.{part}", spec[part], labels, remarks)
    for part in ("containers", "initContainers", "volumes"):
        for item in spec.get(part) or ():
            _repoint(f"{path}.spec.{part}[{item.get('name')}]", item, remarks)
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


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
    ports = [port for port in container.get("ports") or () if port.get("name") not in OLD_PORTS]
    if len(ports) < len(container.get("ports") or ()):
        remarks.add(
            f"{path}.ports",
            "pytorchjob-port is dropped: `spec.rendezvous.port` of the job sets the port, if one "
            "is needed",
        )
    container.pop("ports", None)
    if ports:
        container["ports"] = ports
    env = container.get("env") or []
    set_already = any(variable.get("name") == "PYTHONUNBUFFERED" for variable in env)
    if launch.unbuffered and not set_already:
        container["env"] = [*env, {"name": "PYTHONUNBUFFERED", "value": "1"}]
    first = ("name", "image", "imagePullPolicy", "command", "args")
    ordered = {key: container[key] for key in first if key in container}
    rest = {key: value for key, value in container.items() if key not in ordered}
    container.clear()
    container.update(ordered | rest)


def take_variables(path: str, container: Manifest, remarks: Remarks) -> dict[str, str]:
    """Drops the operator's and the agent's variables.

    Returns:
        The values of torchrun's options that the spec still has, by the options' names.
    """
    kept, taken, dropped = [], {}, []
    for variable in container.get("env") or ():
        name = str(variable.get("name", ""))
        if name == "PET_MAX_RESTARTS" and "value" in variable:
            taken["max-restarts"] = str(variable["value"])
        elif is_set_for_processes(name):
            dropped.append(name)
        else:
            kept.append(variable)
    if dropped:
        why = "dropped, for the operator and the agent set them for each group"
        remarks.add(f"{path}.env", f"{', '.join(dropped)}: {why}")
    container.pop("env", None)
    if kept:
        container["env"] = kept
    return taken


def accelerators(container: Mapping[str, Any]) -> int:
    """The accelerators of a container: its limits, else its requests."""
    resources = container.get("resources") or {}
    wanted = (resources.get("requests") or {}) | (resources.get("limits") or {})
    amounts = (str(wanted.get(name, 0)) for name in ACCELERATORS)
    return sum(int(amount) for amount in amounts if amount.isdecimal())


def _relabel(path: str, part: Any, own: Mapping[str, str], remarks: Remarks) -> Any:
    if isinstance(part, list):
        return [_relabel(path, item, own, remarks) for item in part]
    if not isinstance(part, dict):
        return part
    changed: Manifest = {}
    for key, value in part.items():
        if key == "matchLabels" and isinstance(value, dict):
            changed[key] = {
                _new_label(path, label, own, remarks): wanted for label, wanted in value.items()
            }
        elif key == "key" and isinstance(value, str):
            changed[key] = _new_label(path, value, own, remarks)
        else:
            changed[key] = _relabel(path, value, own, remarks)
    return changed


def _new_label(path: str, label: str, own: Mapping[str, str], remarks: Remarks) -> str:
    if label in LABELS and label not in own:
        remarks.add(path, f"selects by {LABELS[label]} now, instead of {label}")
        return LABELS[label]
    if label.startswith(OLD_LABELS):
        unknown = f"which worker pods do not have: select by {names.LABEL_JOB_NAME}"
        remarks.add(path, f"selects by {label}, {unknown}")
    return label


def _repoint(path: str, part: Any, remarks: Remarks) -> None:
    if isinstance(part, list):
        for item in part:
            _repoint(path, item, remarks)
    if not isinstance(part, dict) or is_set_for_processes(str(part.get("name", ""))):
        return
    for key, value in part.items():
        found = LABEL_FIELD.match(value) if key == "fieldPath" and isinstance(value, str) else None
        if found is None:
            _repoint(path, value, remarks)
        elif found[1] in LABELS:
            label = LABELS[found[1]]
            part[key] = f"metadata.labels['{label}']"
            counts = "" if label == names.LABEL_JOB_NAME else ": it counts all workers from 0"
            remarks.add(path, f"reads the label {label} now, instead of {found[1]}{counts}")
        elif found[1].startswith(OLD_LABELS):
            unknown = "which worker pods do not have, and gets an empty value"
            remarks.add(path, f"reads {found[1]}, {unknown}")


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
