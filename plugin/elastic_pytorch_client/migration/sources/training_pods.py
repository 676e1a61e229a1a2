"""Which container of a pod trains, how the agent starts it, and the job of such pods."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration import shell_text
from elastic_pytorch_client.migration.job_metadata import set_fields
from elastic_pytorch_client.migration.job_size import process_count
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
Claim = tuple[str, str, Mapping[str, Any]]  # path, name and spec

OF_A_GROUP = {"MASTER_ADDR", "WORLD_SIZE", "PET_NNODES", "PET_RDZV_ENDPOINT"}
# Kubernetes and Volcano give them to the pods of their jobs.
INDEX_VARIABLES = ("JOB_COMPLETION_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX")
TRAINING_NAME = re.compile(r"train|tune|\bsft\b|\bdpo\b", re.IGNORECASE)
PYTHON_LAUNCHERS = re.compile(
    r"(?:^|[;&|]|\bexec)\s*(?:[\w./-]*/)?(?:accelerate\s+launch|deepspeed)\s", re.MULTILINE
)
PROCESSES = "nproc-per-node"
TORCHRUN_VARIABLES = {variable_of(option): option for option in ("nnodes", PROCESSES, "standalone")}
MAX_FAILURES = 1000  # of a failurePolicy
DEFAULT_PROCESSES = "1"  # torchrun's own
COUNTED_BY_COMMAND = (
    "the command that is kept has an option of its own for the number of processes, so "
    "spec.nprocPerNode is left out: set it if that number is not the number of accelerators"
)


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
        return min(int(given), MAX_FAILURES) if given.isdecimal() else None


def part(manifest: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The part of a manifest at a path, empty where it is missing."""
    for name in path:
        manifest = manifest.get(name) or {}
    return manifest


def replicas_of(owner: Mapping[str, Any]) -> int:
    replicas = owner.get("replicas")
    return 1 if replicas is None else int(replicas)


def has_group(container: Mapping[str, Any]) -> bool:
    """Whether its variables tell a container of the others."""
    return any(variable.get("name") in OF_A_GROUP for variable in container.get("env") or ())


def trains(container: Mapping[str, Any], entrypoint: Sequence[str] = ()) -> bool:
    words = [
        str(word)
        for word in (*(container.get("command") or entrypoint), *(container.get("args") or ()))
    ]
    text = " ".join(words)
    if has_group(container) or shell_text.TORCHRUN.search(text):
        return True
    if any(PYTHON_LAUNCHERS.search(line) for line in (text, *words)):
        return True
    python = shell_text.PYTHON.search(text) is not None
    return python and any(TRAINING_NAME.search(word) for word in words)


def find_training_container(
    path: str, pod: Mapping[str, Any], name: str, entrypoint: Sequence[str] = ()
) -> Manifest:
    """The container of a name, or without a name the one that trains; or else the only one."""
    containers: list[Manifest] = pod.get("containers") or []
    if name:
        found = [container for container in containers if container.get("name") == name]
        text = f"has none that is named `{name}`: which one trains is not known"
    else:
        found = [container for container in containers if trains(container, entrypoint)]
        text = "must have one that trains: which one does is not known"
    found = found or containers
    if len(found) != 1:
        raise CannotMigrate(f"{path}.spec.containers", text)
    return found[0]


def read_training_pods(
    path: str,
    template: Mapping[str, Any],
    remarks: Remarks,
    entrypoint: Sequence[str] = (),
    name: str = "",
    container_path: str = "",
) -> TrainingPods:
    """The pods of a template whose container of a name trains, or which tell by themselves.

    In those, torchrun's variables are the container's own, and no operator's.
    """
    cleaned = clean_template(path, template, remarks)
    container = find_training_container(path, cleaned["spec"], name, entrypoint)
    old_name = str(container.get("name"))
    path = container_path or f"{path}.spec.containers[{old_name}]"
    values = {
        str(variable.get("name")): str(variable["value"])
        for variable in container.get("env") or ()
        if "value" in variable
    }
    options = take_variables(path, container, remarks)
    if not name:
        options |= {
            option: resolve(values[variable], values)
            for variable, option in TORCHRUN_VARIABLES.items()
            if variable in values
        }
    launch = read_launch(
        path, container.get("command") or (), container.get("args") or (), entrypoint, values
    )
    set_launch(path, container, launch, remarks)
    _check_index(path, container, launch, remarks)
    options |= launch.options
    return TrainingPods(path, old_name, cleaned, launch, options, accelerators(container))


def _check_index(path: str, container: Manifest, launch: Launch, remarks: Remarks) -> None:
    text = " ".join((*launch.command, *launch.args))
    own = [variable.get("name") for variable in container.get("env") or ()]
    for name in INDEX_VARIABLES:
        if name in own or not re.search(rf"\$[({{]?{name}\b", text):
            continue
        if not launch.command and not launch.runs_shell:
            raise CannotMigrate(
                f"{path}.args",
                f"use {name}, which pods do not have here. Read it in the script: "
                'os.environ["GROUP_RANK"]',
            )
        remarks.add(
            f"{path}.command",
            f"it uses {name}, which is not set here. In the training processes, read GROUP_RANK",
        )


def processes_of(
    pods: TrainingPods, remarks: Remarks, field: str = "", given: str = ""
) -> Manifest:
    """`nprocPerNode` as torchrun's option has it, or else a field of the old job.

    In kinds without such a field it is left out where the default means the same.
    """
    if pods.launch.counted:
        remarks.add(f"{pods.path}.command", COUNTED_BY_COMMAND)
        return {}
    by_torchrun = pods.launch.by == "torchrun"
    path = f"{pods.path}, --{PROCESSES}"
    if by_torchrun and PROCESSES in pods.options:
        given = pods.options[PROCESSES]
    elif field:
        path = field
    else:
        # Without torchrun, each pod runs one process, as it did.
        given = DEFAULT_PROCESSES if by_torchrun else "auto"
    count = process_count(
        path,
        given,
        started_by=pods.launch.by,
        accelerators=pods.accelerators,
        remarks=remarks,
    )
    is_default = not field and count == 1 and pods.accelerators <= 1
    return {"nprocPerNode": None if is_default else count}


def make_job(metadata: Manifest, pods: TrainingPods, *parts: Manifest) -> Manifest:
    """A job with those of the fields that have a value.

    Raises:
        CannotMigrate: it mounts a volume that it lacks, as where a JobSet makes claims for pods.
    """
    spec = set_fields({name: value for fields in parts for name, value in fields.items()})
    volumes = {volume.get("name") for volume in pods.template["spec"].get("volumes") or ()}
    volumes |= {claim["metadata"]["name"] for claim in spec.get("sharedVolumeClaims", ())}
    for container, volume in _mounts(pods.template["spec"]):
        if volume not in volumes:
            text = (
                f"mounts the volume {volume}, which the new job does not have: add it to the "
                "pod's volumes"
            )
            raise CannotMigrate(f"container {container}", text)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {**spec, "template": pods.template},
    }


def _mounts(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of each container and volume that it mounts."""
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        for mount in container.get("volumeMounts") or ():
            yield container.get("name"), mount.get("name")


def claims_of_policies(path: str, spec: Mapping[str, Any]) -> list[Claim]:
    """Those that a JobSet's `volumeClaimPolicies` make."""
    policies = spec.get("volumeClaimPolicies") or ()
    templates = [template for policy in policies for template in policy.get("templates") or ()]
    return [
        (f"{path}.volumeClaimPolicies[{name}]", name, one.get("spec") or {})
        for one in templates
        if (name := str(part(one, "metadata").get("name")))
    ]


def shared_claims(claims: Iterable[Claim], pods: TrainingPods, remarks: Remarks) -> Manifest:
    mounted = {volume for _, volume in _mounts(pods.template["spec"])}
    shared = []
    for path, name, spec in claims:
        if name in mounted:
            shared.append({"metadata": {"name": name}, "spec": spec})
            text = (
                "becomes one of spec.sharedVolumeClaims, which stays with the default of "
                "sharedVolumeClaimRetentionPolicy"
            )
            remarks.add(path, text)
    return {"sharedVolumeClaims": shared}


def say_hosts(
    path: str, metadata: Mapping[str, Any], hosts: str, pods: TrainingPods, remarks: Remarks
) -> None:
    """Remarks that a template still names an old pod's host: the job's name, then `hosts`."""
    name = metadata.get("name")
    if name and (found := re.search(rf"\b{re.escape(str(name))}-{hosts}", str(pods.template))):
        text = (
            f"{found[0]} is a host of the old job. In the training processes, MASTER_ADDR is rank "
            "0's address"
        )
        remarks.add(path, text)
