"""What a machine without containers cannot do of a pod template: refused where the script would see it, else only named."""

from collections.abc import Iterator, Mapping
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.spec.fields import InvalidJob, suggest
from elastic_pytorch_operator.spec.job import training_container
from elastic_pytorch_operator.spec.volumes import SHARED_MEMORY_FOLDER

from elastic_pytorch_local.manifests.config_objects import Config, volume_files
from elastic_pytorch_local.manifests.variables import (
    KEY_REFERENCES,
    container_variables,
    is_known_field,
)

POD, CONTAINERS = "spec.template.spec", "spec.template.spec.containers"
VOLUMES = ("configMap", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
PROJECTIONS = ("configMap", "secret")
POD_FIELDS = (
    "containers",
    "hostname",
    "restartPolicy",
    "subdomain",
    "terminationGracePeriodSeconds",
    "volumes",
)
CONTAINER_FIELDS = ("args", "command", "env", "envFrom", "name", "volumeMounts", "workingDir")
# Refused, as they change what the script finds: the field, and what to do without it.
POD_OBSTACLES = {
    "hostAliases": "this machine resolves the names: write them into /etc/hosts",
    "initContainers": "only the container that trains is started: do their work before",
}
CONTAINER_OBSTACLES = {
    "lifecycle": "no hook is run: do its work in the script",
    "volumeDevices": "there are no block devices: read from a file",
}


def check_references(manifest: Mapping[str, Any], config: Config) -> None:
    """Refuses a template that mounts a volume, or refers to a ConfigMap or a Secret, that is not there.

    Raises:
        InvalidJob: for the first of them; it says how to give it.
    """
    path, container, volumes = _training(manifest)
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            what = suggest(str(mount.get("name")), volumes) or ": add it to the volumes"
            raise InvalidJob(
                f"{path}.volumeMounts[{number}].name",
                f"there is no volume {mount.get('name')}{what}",
            )
        if not mount.get("mountPath"):
            raise InvalidJob(f"{path}.volumeMounts[{number}].mountPath", "is missing")
        where, volume = volumes[mount["name"]]
        files = volume_files(volume, config, where)
        part = mount.get("subPath")
        if (
            files is not None
            and part
            and not any(name == part or name.startswith(f"{part}/") for name in files)
        ):
            raise InvalidJob(
                f"{path}.volumeMounts[{number}].subPath",
                f"there is no {part} in the volume{suggest(part, files)}",
            )
    container_variables({"metadata": manifest["metadata"], "spec": {}}, container, config, "", path)


def find_obstacles(manifest: Mapping[str, Any]) -> list[InvalidJob]:
    """What the script would not find here that it has on a cluster; each names the field and what to do without it."""
    return [
        InvalidJob(path, f"{problem}, or have it left out with --leave-out")
        for path, problem in _obstacles(manifest)
    ]


def _obstacles(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pod = manifest["spec"]["template"]["spec"]
    path, container, volumes = _training(manifest)
    yield from (
        (f"{POD}.{field}", problem) for field, problem in POD_OBSTACLES.items() if pod.get(field)
    )
    for number, other in enumerate(pod["containers"]):
        if other is not container:
            yield (
                f"{CONTAINERS}[{number}]",
                f"only the container that trains is started: run {other['name']} in another way",
            )
    yield from (
        (f"{path}.{field}", problem)
        for field, problem in CONTAINER_OBSTACLES.items()
        if container.get(field)
    )
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        where, volume = volumes[mount["name"]]
        if mount["mountPath"] == SHARED_MEMORY_FOLDER:
            continue
        if mount.get("subPathExpr"):
            yield (
                f"{path}.volumeMounts[{number}].subPathExpr",
                "it is not expanded here: use subPath",
            )
        for kind in sorted(set(volume) - {"name", *VOLUMES}):
            yield (
                f"{where}.{kind}",
                "it cannot be mounted here: write the path of a folder of this machine into args or env",
            )
        for place, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            for kind in sorted(set(source) - set(PROJECTIONS)):
                yield (
                    f"{where}.projected.sources[{place}].{kind}",
                    "only ConfigMaps and Secrets are projected here: take it out",
                )
    for number, variable in enumerate(container.get("env") or ()):
        where, source = f"{path}.env[{number}].valueFrom", variable.get("valueFrom") or {}
        field = (source.get("fieldRef") or {}).get("fieldPath") or ""
        if source.get("fieldRef") and not is_known_field(field):
            yield (
                f"{where}.fieldRef.fieldPath",
                f"{field} has no value here: write a value in its place",
            )
        for kind in sorted(set(source) - {"fieldRef", *KEY_REFERENCES}):
            yield f"{where}.{kind}", "it has no value here: write a value in its place"


def fields_not_applied(manifest: Mapping[str, Any]) -> list[str]:
    """The fields that mean nothing on one machine, and change nothing that the script sees."""
    pod = manifest["spec"]["template"]["spec"]
    _, container, _ = _training(manifest)
    found = {
        name for name, value in pod.items() if value and name not in (*POD_FIELDS, *POD_OBSTACLES)
    }
    found |= {
        name
        for name, value in container.items()
        if value and name not in (*CONTAINER_FIELDS, *CONTAINER_OBSTACLES)
    }
    queue = (manifest["metadata"].get("labels") or {}).get(kueue.LABEL_QUEUE)
    return sorted(found) + ([f"the label {kueue.LABEL_QUEUE}"] if queue else [])


def _training(
    manifest: Mapping[str, Any],
) -> tuple[str, Mapping[str, Any], dict[str, tuple[str, Mapping[str, Any]]]]:
    """The path of the container that trains, the container, and path and volume of each name."""
    template = manifest["spec"]["template"]
    container, pod = training_container(template), template["spec"]
    (number,) = (place for place, other in enumerate(pod["containers"]) if other is container)
    volumes = {
        volume.get("name"): (f"{POD}.volumes[{place}]", volume)
        for place, volume in enumerate(pod.get("volumes") or ())
    }
    for place, claim in enumerate(manifest["spec"].get("sharedVolumeClaims") or ()):
        volumes[claim["metadata"]["name"]] = (
            f"spec.sharedVolumeClaims[{place}]",
            {"persistentVolumeClaim": {}},
        )
    return f"{CONTAINERS}[{number}]", container, volumes
