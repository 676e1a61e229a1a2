"""Folders for a container's volumes, and the container's paths on this machine."""

import re
from collections.abc import Mapping
from pathlib import Path

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.manifests.worker_pod import TOKEN_FOLDER
from elastic_pytorch_operator.spec.volumes import SHARED_MEMORY_FOLDER

from elastic_pytorch_local.manifests.config_objects import Config, File, volume_files

# The token is passed in another way, and this machine has a /dev/shm.
OWN_FOLDERS = (TOKEN_FOLDER, SHARED_MEMORY_FOLDER)
UNMAPPED = ("", "/tmp")  # this machine has a /tmp
SHARED = ("hostPath", "persistentVolumeClaim")


def mount_volumes(
    workdir: Path, pod: Manifest, container: Manifest, config: Config
) -> dict[str, Path]:
    """Makes the folders of a container's volumes; returns them by the container's path.

    Pods share a claim's folder; any other is the pod's own.
    """
    mapped: dict[str, Path] = {}
    volumes = {volume.get("name"): volume for volume in pod["spec"].get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        if mount["mountPath"] in OWN_FOLDERS:
            continue
        volume = volumes.get(mount["name"], {})
        owner = "shared" if any(kind in volume for kind in SHARED) else pod["metadata"]["name"]
        folder = workdir / "volumes" / owner / mount["name"]
        target = folder / (mount.get("subPath") or "")
        files = volume_files(volume, config, f"volume {mount['name']}")
        if files is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            _write(folder, files)
        mapped[mount["mountPath"]] = target
    return mapped


def _write(folder: Path, files: Mapping[str, File]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # of Secrets, too
    for name, file in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():  # or the volume is mounted twice
            path.write_bytes(file.content)
            path.chmod(file.mode)


def map_path(word: str, mapped: Mapping[str, Path]) -> str:
    """A word of a command or a variable, with this machine's paths for the container's."""
    folders = {path.rstrip("/"): str(folder) for path, folder in mapped.items()}
    folders = {path: folder for path, folder in folders.items() if path not in UNMAPPED}
    if not folders:
        return word
    longest_first = "|".join(re.escape(path) for path in sorted(folders, key=len, reverse=True))
    path = rf"(?<![\w./-])(?:{longest_first})(?![\w.-])"
    return re.sub(path, lambda found: folders[found[0]], word)
