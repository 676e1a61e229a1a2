"""Copies the agent, from its own image, into pods whose images have only torch. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api.manifest import MutableManifest, append

VOLUME = "elastic-pytorch-agent"
CONTAINER = "elastic-pytorch-agent"
FOLDER = "/opt/elastic-pytorch"  # in the training container
COPY_FOLDER = "/agent"  # in the init container
VOLUME_SIZE = "16Mi"  # the agent has less than one

# Nearly every image has `python3`; some have neither `python` nor a shell.
INSTALLED_COMMAND = ["python3", "-m", "elastic_pytorch.agent"]
INJECTED_COMMAND = ["python3", FOLDER]

PYTHONPATH = "PYTHONPATH"
OWN_PYTHONPATH = "ELASTIC_PYTORCH_OWN_PYTHONPATH"


@dataclass(frozen=True, slots=True)
class AgentImage:
    """The image whose entry point copies the agent to the folder that is its argument."""

    name: str
    pull_policy: str = ""  # Always, IfNotPresent or Never; empty: Kubernetes' default for the name
    pull_secrets: tuple[str, ...] = ()  # names of Secrets in the job's namespace


def inject_agent(
    spec: MutableManifest, container: MutableManifest, image: AgentImage, *, own_command: bool
) -> None:
    """Only the user's own command needs PYTHONPATH, by which torchrun finds its handler."""
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    append(container, "volumeMounts", mount)
    if own_command:
        container["env"] = _with_agent_on_path(container.get("env") or [])
    # In memory, it does not keep an autoscaler from removing the node.
    volume = {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": VOLUME_SIZE}}
    append(spec, "volumes", volume)
    own = spec.get("imagePullSecrets") or ()
    secrets = ({"name": name} for name in image.pull_secrets)
    append(spec, "imagePullSecrets", *(secret for secret in secrets if secret not in own))
    # The last one: the user's own init containers may wait for longer.
    append(spec, "initContainers", _copying_container(image, spec, container))


def _copying_container(
    image: AgentImage, spec: Mapping[str, Any], training: Mapping[str, Any]
) -> MutableManifest:
    # Without a user, so that OpenShift can assign one. A kubelet does not start a container with
    # runAsNonRoot in a pod that runs as root.
    as_root = (spec.get("securityContext") or {}).get("runAsUser") == 0
    container: MutableManifest = {
        "name": CONTAINER,
        "image": image.name,
        "args": [COPY_FOLDER],
        "volumeMounts": [{"name": VOLUME, "mountPath": COPY_FOLDER}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # By the restricted Pod Security Standard, unless the pod itself runs as root.
        "securityContext": {
            "runAsNonRoot": not as_root,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if resources := native_resources(training):
        container["resources"] = resources
    if image.pull_policy:
        container["imagePullPolicy"] = image.pull_policy
    return container


def native_resources(container: Mapping[str, Any]) -> MutableManifest:
    """A container's requests and limits without devices, whose names have a domain.

    Another container with these fits the same LimitRange.
    """
    resources = container.get("resources") or {}
    native = {
        kind: {
            name: amount for name, amount in (resources.get(kind) or {}).items() if "/" not in name
        }
        for kind in ("requests", "limits")
    }
    return {kind: amounts for kind, amounts in native.items() if amounts}


def _with_agent_on_path(env: list[MutableManifest]) -> list[MutableManifest]:
    changed = []
    rest = ""
    for variable in env:
        if variable.get("name") != PYTHONPATH:
            changed.append(variable)
        elif "valueFrom" in variable:
            changed.append({**variable, "name": OWN_PYTHONPATH})
            rest = f":$({OWN_PYTHONPATH})"
        elif variable.get("value"):
            rest = f":{variable['value']}"
    return [*changed, {"name": PYTHONPATH, "value": f"{FOLDER}{rest}"}]
