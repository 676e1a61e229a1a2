"""The manifest of a job, from Python arguments or from a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from elastic_pytorch_client import names
from elastic_pytorch_client.errors import Refused, one_line
from elastic_pytorch_client.yaml_text import read_documents


def build_manifest(
    name: str,
    *,
    image: str,
    args: Sequence[str],
    replicas: int = 1,
    min_replicas: int | None = None,
    max_replicas: int | None = None,
    nproc_per_node: int | str | None = None,
    env: Mapping[str, str] | None = None,
    resources: Mapping[str, Mapping[str, str]] | None = None,
    labels: Mapping[str, str] | None = None,
    pod: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns a job's manifest. An argument that is None leaves its field out.

    `args` are the words that would follow `torchrun`, such as `["train.py", "--lr", "0.1"]`, and
    `image` has torch and the script. `env` and `resources`, such as `{"limits": {"nvidia.com/gpu":
    "1"}}`, are those of the training container. `pod` and `spec` have more fields of the pod's and
    the job's spec, as the API names them, such as `{"failurePolicy": {"maxFailures": 1}}`. A
    container `pytorch` in `pod` keeps its other fields.
    """
    pod_spec: dict[str, Any] = dict(pod or {})
    containers = [dict(container) for container in pod_spec.get("containers") or ()]
    training = next((c for c in containers if c.get("name") == names.TRAINING_CONTAINER), None)
    if training is None:
        training = {"name": names.TRAINING_CONTAINER}
        containers.insert(0, training)
    training |= {"image": image, "args": list(args)}
    if env:
        added = [{"name": key, "value": value} for key, value in env.items()]
        training["env"] = [*training.get("env", ()), *added]
    if resources:
        training["resources"] = {kind: dict(amounts) for kind, amounts in resources.items()}
    sizes = {
        "replicas": replicas,
        "minReplicas": min_replicas,
        "maxReplicas": max_replicas,
        "nprocPerNode": nproc_per_node,
    }
    metadata: dict[str, Any] = {"name": name, **({"labels": dict(labels)} if labels else {})}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {
            **{field: value for field, value in sizes.items() if value is not None},
            **(spec or {}),
            "template": {"spec": {**pod_spec, "containers": containers}},
        },
    }


def read_manifest(source: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """The job of a manifest, of YAML text, or of a file.

    Raises:
        Refused: there is none.
    """
    if isinstance(source, Mapping):
        return dict(source)
    try:
        text = source.read_text() if isinstance(source, Path) else source
        documents = read_documents(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Refused(f"cannot read the manifest: {one_line(error)}") from error
    objects = (document for document in documents if isinstance(document, dict))
    found = next((each for each in objects if each.get("kind") == names.KIND), None)
    if found is None:
        raise Refused(f"the manifest holds no {names.KIND}")
    return found


def shown_manifest(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job as kubectl prints it, without its managed fields."""
    metadata = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
    return {**job, "metadata": metadata}
