"""The agent for images that have only torch: an init container from the operator's image copies it into the pod. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

VOLUME = "elastic-pytorch-agent"
CONTAINER = "elastic-pytorch-agent"
FOLDER = "/opt/elastic-pytorch"  # in the training container
COPY_FOLDER = "/agent"  # in the init container, whose image has its own agent in FOLDER
VOLUME_SIZE = "16Mi"  # the agent has a tenth of a megabyte or two
USER = 65532  # the user of the operator's image

# `python3`, as nearly every image has it, and a few have no `python`. No shell: an image may have none.
INSTALLED_COMMAND = ("python3", "-m", "elastic_pytorch.agent")
INJECTED_COMMAND = ("python3", FOLDER)

PYTHONPATH = "PYTHONPATH"
OWN_PYTHONPATH = "ELASTIC_PYTORCH_OWN_PYTHONPATH"

# For a training container that says nothing of its own resources. Copying takes a fifth of a second and a few megabytes.
SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}


@dataclass(frozen=True, slots=True)
class AgentImage:
    """The image that brings the agent: the operator's own.

    Attributes:
        name: as a pod names it.
        pull_policy: Always, IfNotPresent or Never; empty: Kubernetes' default for the name.
    """

    name: str
    pull_policy: str = ""


def agent_command(*, injected: bool) -> list[str]:
    """The training container's command, if its job has none of its own."""
    return list(INJECTED_COMMAND if injected else INSTALLED_COMMAND)


def inject_agent(spec: Manifest, container: Manifest, image: AgentImage, *, own_command: bool) -> None:
    """Puts the agent into a pod's spec.

    Args:
        spec: the pod's, which is changed.
        container: the one of its containers that trains; changed as well.
        image: which brings the agent.
        own_command: the container runs a command of the user's, which finds the agent, and torchrun its rendezvous handler, by
            PYTHONPATH. The agent itself needs none, so a PYTHONPATH that the image has stays as it is.
    """
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    if own_command:
        container["env"] = _with_agent_on_path(container.get("env") or [])
    # In memory: it is small, needs no disk, and no autoscaler spares a node for its sake.
    volume = {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": VOLUME_SIZE}}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    # The last one: whoever the user's own init containers wait for, the agent's image is the smaller wait.
    spec["initContainers"] = [*(spec.get("initContainers") or []), _copying_container(image, container)]


def _copying_container(image: AgentImage, training: Mapping[str, Any]) -> Manifest:
    container: Manifest = {
        "name": CONTAINER,
        "image": image.name,
        "args": ["copy-agent", COPY_FOLDER],
        "volumeMounts": [{"name": VOLUME, "mountPath": COPY_FOLDER}],
        "resources": _resources(training.get("resources") or {}),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # What the restricted Pod Security Standard asks for, whatever the pod as a whole says.
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if image.pull_policy:
        container["imagePullPolicy"] = image.pull_policy
    return container


def _resources(training: Mapping[str, Any]) -> Manifest:
    """The training container's cores and memory: it does not run yet, so they are free, and the pod keeps its size and QoS class."""
    same = {
        kind: {name: amount for name, amount in (training.get(kind) or {}).items() if name in ("cpu", "memory")}
        for kind in ("requests", "limits")
    }
    return {kind: amounts for kind, amounts in same.items() if amounts} or SMALL


def _with_agent_on_path(env: list[Manifest]) -> list[Manifest]:
    """The environment with the agent in front of the container's own PYTHONPATH."""
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
