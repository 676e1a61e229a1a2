"""Which container of a pod trains, and how the agent starts it."""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration import shell_text
from elastic_pytorch_client.migration.job_size import COUNTED_BY_COMMAND, process_count
from elastic_pytorch_client.migration.launch import Launch, read_launch, resolve
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.template import (
    accelerators,
    clean_template,
    set_launch,
    take_variables,
)
from elastic_pytorch_client.migration.torchrun_options import variable_of

Manifest = dict[str, Any]

OF_A_GROUP = {"MASTER_ADDR", "WORLD_SIZE", "PET_NNODES", "PET_RDZV_ENDPOINT"}
TRAINING_NAME = re.compile(r"train|tune|\bsft\b|\bdpo\b", re.IGNORECASE)
PYTHON_LAUNCHERS = re.compile(
    r"(?:^|[;&|]|\bexec)\s*(?:[\w./-]*/)?(?:accelerate\s+launch|deepspeed)\s", re.MULTILINE
)
TORCHRUN_VARIABLES = {
    variable_of(option): option for option in ("nnodes", "nproc-per-node", "standalone")
}
DEFAULT_PROCESSES = "1"  # torchrun's own


@dataclass(frozen=True, slots=True)
class TrainingPods:
    path: str  # of the container
    container: str  # its old name
    template: Manifest  # cleaned, its container started as the agent does
    launch: Launch
    options: dict[str, str]  # torchrun's, from the command line and the environment
    accelerators: int  # of each pod

    @property
    def max_restarts(self) -> int | None:
        given = self.options.get("max-restarts", "")
        return int(given) if given.isdecimal() else None


def trains(container: Mapping[str, Any], entrypoint: Sequence[str] = ()) -> bool:
    words = [
        str(word)
        for word in (*(container.get("command") or entrypoint), *(container.get("args") or ()))
    ]
    if any(variable.get("name") in OF_A_GROUP for variable in container.get("env") or ()):
        return True
    text = " ".join(words)
    if shell_text.TORCHRUN.search(text) or any(
        PYTHON_LAUNCHERS.search(line) for line in (text, *words)
    ):
        return True
    return shell_text.calls_python(text) and any(TRAINING_NAME.search(word) for word in words)


def read_training_pods(
    path: str,
    template: Mapping[str, Any],
    index_variables: Sequence[str],
    remarks: Remarks,
    entrypoint: Sequence[str],
) -> TrainingPods:
    cleaned = clean_template(path, template, remarks)
    containers = cleaned["spec"].get("containers") or []
    found = [container for container in containers if trains(container, entrypoint)] or containers
    if len(found) != 1:
        raise CannotMigrate(
            f"{path}.spec.containers", "must have one that trains: which one does is not known"
        )
    [container] = found
    path = f"{path}.spec.containers[{container.get('name')}]"
    _drop_index(path, container, index_variables, remarks)
    values = _values(container)
    variables = {
        option: resolve(values[name], values)
        for name, option in TORCHRUN_VARIABLES.items()
        if name in values
    }
    pods = read_container(path, cleaned, container, remarks, entrypoint)
    _check_index(path, pods.launch, index_variables, remarks)
    return replace(pods, options=variables | pods.options)


def read_container(
    path: str, template: Manifest, container: Manifest, remarks: Remarks, entrypoint: Sequence[str]
) -> TrainingPods:
    """The pods of a cleaned template; the agent starts the container at `path`."""
    name, values = str(container.get("name")), _values(container)
    variables = take_variables(path, container, remarks)
    launch = read_launch(
        path, container.get("command") or (), container.get("args") or (), entrypoint, values
    )
    set_launch(path, container, launch, remarks)
    return TrainingPods(
        path, name, template, launch, variables | launch.options, accelerators(container)
    )


def _values(container: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(one.get("name")): str(one["value"])
        for one in container.get("env") or ()
        if "value" in one
    }


def processes_of(pods: TrainingPods, remarks: Remarks) -> Manifest:
    """`nprocPerNode` as torchrun counts, unless the default means the same."""
    if pods.launch.counted:
        remarks.add(f"{pods.path}.command", COUNTED_BY_COMMAND)
        return {}
    given = pods.options.get("nproc-per-node", DEFAULT_PROCESSES)
    if pods.launch.by == "python":
        given = "auto"  # each pod runs one process, as it did
    count = process_count(
        f"{pods.path}, --nproc-per-node",
        given,
        started_by=pods.launch.by,
        accelerators=pods.accelerators,
        remarks=remarks,
    )
    return (
        {} if count is None or (count == 1 and pods.accelerators <= 1) else {"nprocPerNode": count}
    )


def make_job(metadata: Manifest, pods: TrainingPods, *fields: Manifest) -> Manifest:
    spec = {name: value for part in fields for name, value in part.items()}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {**spec, "template": pods.template},
    }


def set_fields(spec: Mapping[str, Any], *fields: str) -> Manifest:
    return {field: spec[field] for field in fields if spec.get(field) is not None}


def claims_of_policies(
    path: str, spec: Mapping[str, Any]
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Path, name and spec of each claim that a JobSet's `volumeClaimPolicies` make."""
    policies = spec.get("volumeClaimPolicies") or ()
    templates = [template for policy in policies for template in policy.get("templates") or ()]
    return [
        (f"{path}.volumeClaimPolicies[{name}]", name, one.get("spec") or {})
        for one in templates
        if (name := str((one.get("metadata") or {}).get("name")))
    ]


def shared_claims(
    claims: Iterable[tuple[str, str, Mapping[str, Any]]], pods: TrainingPods, remarks: Remarks
) -> Manifest:
    pod = pods.template["spec"]
    containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
    mounted = {
        mount.get("name")
        for container in containers
        for mount in container.get("volumeMounts") or ()
    }
    shared = []
    for path, name, spec in claims:
        if name in mounted:
            shared.append({"metadata": {"name": name}, "spec": copy.deepcopy(dict(spec))})
            text = (
                "becomes one of spec.sharedVolumeClaims, which stays with the default of "
                "sharedVolumeClaimRetentionPolicy"
            )
            remarks.add(path, text)
    return {"sharedVolumeClaims": shared} if shared else {}


def say_hosts(path: str, name: object, hosts: str, pods: TrainingPods, remarks: Remarks) -> None:
    """Remarks that a template still names an old pod's host: the job's name, then `hosts`."""
    if name and (found := re.search(rf"\b{re.escape(str(name))}-{hosts}", str(pods.template))):
        text = (
            f"{found[0]} is a host of the old job. In the training processes, MASTER_ADDR is rank "
            "0's address"
        )
        remarks.add(path, text)


def _drop_index(
    path: str, container: Manifest, index_variables: Sequence[str], remarks: Remarks
) -> None:
    kept = []
    for variable in container.get("env") or ():
        if variable.get("name") in index_variables:
            text = (
                "is dropped: pods have no completion index. In the training processes, "
                "GROUP_RANK is the pod's place in the group"
            )
            remarks.add(f"{path}.env[{variable.get('name')}]", text)
        else:
            kept.append(variable)
    container.pop("env", None)
    if kept:
        container["env"] = kept


def _check_index(
    path: str, launch: Launch, index_variables: Sequence[str], remarks: Remarks
) -> None:
    text = " ".join((*launch.command, *launch.args))
    for name in index_variables:
        if not re.search(rf"\$[({{]?{name}\b", text):
            continue
        if (
            not launch.command
            and PurePosixPath(launch.args[1] if len(launch.args) > 1 else "").name
            not in shell_text.SHELLS
        ):
            raise CannotMigrate(
                f"{path}.args",
                f"use {name}, which pods do not have here. Read it in the script: "
                'os.environ["GROUP_RANK"]',
            )
        remarks.add(
            f"{path}.command",
            f"it uses {name}, which is not set here. In the training processes, read GROUP_RANK",
        )
