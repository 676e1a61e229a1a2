"""What a machine without containers cannot do: refused if the script would see it."""

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
    *("containers", "hostname", "restartPolicy", "subdomain"),
    *("terminationGracePeriodSeconds", "volumes"),
)
CONTAINER_FIELDS = ("args", "command", "env", "envFrom", "name", "volumeMounts", "workingDir")
# These fields change what the script finds, so they are refused, with the remedy.
POD_OBSTACLES = {
    "hostAliases": "this machine resolves the names: write them into /etc/hosts",
    "initContainers": "only the container that trains is started: do their work before",
}
CONTAINER_OBSTACLES = {
    "lifecycle": "no hook is run: do its work in the script",
    "volumeDevices": "there are no block devices: read from a file",
}


def check_references(manifest: Mapping[str, Any], config: Config) -> None:
    """Raises InvalidJob for the first missing volume, ConfigMap or Secret, with the remedy."""
    path, container, volumes = _training(manifest)
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        at = f"{path}.volumeMounts[{number}]"
        if (name := mount.get("name")) not in volumes:
            what = suggest(str(name), volumes) or ": add it to the volumes"
            raise InvalidJob(f"{at}.name", f"there is no volume {name}{what}")
        if not mount.get("mountPath"):
            raise InvalidJob(f"{at}.mountPath", "is missing")
        where, volume = volumes[name]
        files, part = volume_files(volume, config, where), mount.get("subPath")
        if (
            files is not None
            and part
            and not any(file == part or file.startswith(f"{part}/") for file in files)
        ):
            what = f"there is no {part} in the volume{suggest(part, files)}"
            raise InvalidJob(f"{at}.subPath", what)
    container_variables({"metadata": manifest["metadata"], "spec": {}}, container, config, "", path)


def find_obstacles(manifest: Mapping[str, Any]) -> list[InvalidJob]:
    """The missing parts that the script would find on a cluster, each with the remedy."""
    left_out = "or have it left out with --leave-out"
    return [InvalidJob(path, f"{problem}, {left_out}") for path, problem in _obstacles(manifest)]


def _obstacles(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pod = manifest["spec"]["template"]["spec"]
    path, container, volumes = _training(manifest)
    for field in filter(pod.get, POD_OBSTACLES):
        yield f"{POD}.{field}", POD_OBSTACLES[field]
    for number, other in enumerate(pod["containers"]):
        if other is not container:
            how = f"run {other['name']} in another way"
            yield f"{CONTAINERS}[{number}]", f"only the container that trains is started: {how}"
    for field in filter(container.get, CONTAINER_OBSTACLES):
        yield f"{path}.{field}", CONTAINER_OBSTACLES[field]
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        where, volume = volumes[mount["name"]]
        if mount["mountPath"] == SHARED_MEMORY_FOLDER:
            continue
        if mount.get("subPathExpr"):
            at = f"{path}.volumeMounts[{number}].subPathExpr"
            yield at, "it is not expanded here: use subPath"
        for kind in sorted(set(volume) - {"name", *VOLUMES}):
            how = "write the path of a folder of this machine into args or env"
            yield f"{where}.{kind}", f"it cannot be mounted here: {how}"
        for place, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            for kind in sorted(set(source) - set(PROJECTIONS)):
                at = f"{where}.projected.sources[{place}].{kind}"
                yield at, "only ConfigMaps and Secrets are projected here: take it out"
    for number, variable in enumerate(container.get("env") or ()):
        where, source = f"{path}.env[{number}].valueFrom", variable.get("valueFrom") or {}
        field = (source.get("fieldRef") or {}).get("fieldPath") or ""
        if source.get("fieldRef") and not is_known_field(field):
            at = f"{where}.fieldRef.fieldPath"
            yield at, f"{field} has no value here: write a value in its place"
        for kind in sorted(set(source) - {"fieldRef", *KEY_REFERENCES}):
            yield f"{where}.{kind}", "it has no value here: write a value in its place"


def fields_not_applied(manifest: Mapping[str, Any]) -> list[str]:
    """The fields that mean nothing on one machine, and that the script does not see."""
    pod = manifest["spec"]["template"]["spec"]
    _, container, _ = _training(manifest)
    of_pod, of_container = {*POD_FIELDS, *POD_OBSTACLES}, {*CONTAINER_FIELDS, *CONTAINER_OBSTACLES}
    found = {name for name, value in pod.items() if value and name not in of_pod}
    found |= {name for name, value in container.items() if value and name not in of_container}
    queue = (manifest["metadata"].get("labels") or {}).get(kueue.LABEL_QUEUE)
    return sorted(found) + ([f"the label {kueue.LABEL_QUEUE}"] if queue else [])


def _training(
    manifest: Mapping[str, Any],
) -> tuple[str, Mapping[str, Any], dict[str, tuple[str, Mapping[str, Any]]]]:
    """The path of the training container, the container, and each volume's path by its name."""
    template = manifest["spec"]["template"]
    container, pod = training_container(template), template["spec"]
    (number,) = (place for place, other in enumerate(pod["containers"]) if other is container)
    volumes = {
        volume.get("name"): (f"{POD}.volumes[{place}]", volume)
        for place, volume in enumerate(pod.get("volumes") or ())
    }
    for place, claim in enumerate(manifest["spec"].get("sharedVolumeClaims") or ()):
        at = f"spec.sharedVolumeClaims[{place}]"
        volumes[claim["metadata"]["name"]] = (at, {"persistentVolumeClaim": {}})
    return f"{CONTAINERS}[{number}]", container, volumes
