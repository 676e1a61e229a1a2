"""ConfigMaps and Secrets of the user's files, and their values in pods."""

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from elastic_pytorch_operator.spec.fields import InvalidJob, suggest

from elastic_pytorch_local.manifests.admission import check_model

CONFIG_MAP, SECRET = "ConfigMap", "Secret"
Config = Mapping[tuple[str, str], Mapping[str, bytes]]  # the data by kind and name

DEFAULT_MODE = 0o644  # of files in volumes


class File(NamedTuple):
    content: bytes
    mode: int  # permissions


def read_config(
    documents: Iterable[Mapping[str, Any]], namespace: str
) -> dict[tuple[str, str], Mapping[str, bytes]]:
    """The data of all ConfigMaps and Secrets in a namespace."""
    config: dict[tuple[str, str], Mapping[str, bytes]] = {}
    for document in documents:
        kind, name = document["kind"], document["metadata"]["name"]
        title = f"{kind} {name}"
        try:
            check_model(document, f"V1{kind}")
        except InvalidJob as fault:
            raise InvalidJob(title, str(fault)) from fault
        if document["metadata"]["namespace"] != namespace:
            continue
        if (kind, name) in config:
            raise InvalidJob(title, "is there twice: remove one, or give it another name")
        text, encoded = ("stringData", "data") if kind == SECRET else ("data", "binaryData")
        data = {
            key: _decoded(value, f"{title}: {encoded}.{key}")
            for key, value in (document.get(encoded) or {}).items()
        }
        data |= {key: value.encode() for key, value in (document.get(text) or {}).items()}
        config[kind, name] = data
    return config


def config_of_path(path: Path) -> Mapping[str, bytes]:
    """The data of `kubectl create configmap --from-file` for a file, or a folder's files."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


def find_data(
    config: Config, kind: str, reference: Mapping[str, Any], path: str, name: str = "name"
) -> Mapping[str, bytes] | None:
    """Returns None for missing data that are optional; raises InvalidJob for other missing data."""
    wanted = reference.get(name)
    if not wanted:
        raise InvalidJob(f"{path}.{name}", "is missing")
    if (found := config.get((kind, wanted))) is not None or reference.get("optional"):
        return found
    made = f", or make it of a file with --configmap {wanted}=PATH" if kind == CONFIG_MAP else ""
    meant = suggest(wanted, (known for other, known in config if other == kind))
    give = f"name its YAML file after the job's{made}{meant}"
    raise InvalidJob(path, f"there is no {kind} {wanted}: {give}")


def find_value(config: Config, kind: str, reference: Mapping[str, Any], path: str) -> bytes | None:
    if (data := find_data(config, kind, reference, path)) is None:
        return None
    title, optional = f"{kind} {reference['name']}", bool(reference.get("optional"))
    return _value(data, reference.get("key"), title, path, optional=optional)


def volume_files(volume: Mapping[str, Any], config: Config, path: str) -> dict[str, File] | None:
    """The files of a volume by path in it; None if it has no ConfigMaps and Secrets."""
    files: dict[str, File] = {}
    for kind, source, where, name in _sources(volume, path):
        if (data := find_data(config, kind, source, where, name)) is None:
            continue
        has_mode = source if "defaultMode" in source else volume.get("projected") or {}
        mode = has_mode.get("defaultMode") or DEFAULT_MODE
        if not source.get("items"):
            files |= {key: File(value, mode) for key, value in data.items()}
        for number, item in enumerate(source.get("items") or ()):
            place, title = f"{where}.items[{number}]", f"{kind} {source[name]}"
            optional = bool(source.get("optional"))
            value = _value(data, item.get("key"), title, place, optional=optional)
            into = Path(item.get("path") or "")
            if not into.parts or into.is_absolute() or ".." in into.parts:
                raise InvalidJob(f"{place}.path", "must be a path in the volume, without `..`")
            if value is not None:
                files[str(into)] = File(value, item.get("mode") or mode)
    return files if {"configMap", "secret", "projected"} & set(volume) else None


def _sources(
    volume: Mapping[str, Any], path: str
) -> Iterable[tuple[str, Mapping[str, Any], str, str]]:
    """Yields each kind, reference, path of the reference, and field of its name."""
    if source := volume.get("configMap"):
        yield CONFIG_MAP, source, f"{path}.configMap", "name"
    if source := volume.get("secret"):
        yield SECRET, source, f"{path}.secret", "secretName"
    for number, part in enumerate((volume.get("projected") or {}).get("sources") or ()):
        where = f"{path}.projected.sources[{number}]"
        for kind, field in ((CONFIG_MAP, "configMap"), (SECRET, "secret")):
            if part.get(field):
                yield kind, part[field], f"{where}.{field}", "name"


def _value(
    data: Mapping[str, bytes], key: str | None, title: str, path: str, *, optional: bool
) -> bytes | None:
    if not key:
        raise InvalidJob(f"{path}.key", "is missing")
    if key not in data and not optional:
        known = f": it has {', '.join(sorted(data))}" if data else ": it is empty"
        what = suggest(key, data) or known
        raise InvalidJob(f"{path}.key", f"there is no {key} in {title}{what}")
    return data.get(key)


def _decoded(value: str, path: str) -> bytes:
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except ValueError as fault:
        how = "must be base64: encode it, or write it as it is under stringData"
        raise InvalidJob(path, how) from fault
