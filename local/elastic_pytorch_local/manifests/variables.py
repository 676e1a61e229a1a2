"""The environment of a container, and `$(NAME)` in its command, as a kubelet makes them."""

import os
import re
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_local.manifests.config_objects import (
    CONFIG_MAP,
    SECRET,
    Config,
    find_data,
    find_value,
)

LOOPBACK = "127.0.0.1"
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^()]*)\))")
_OF_MAP = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid"),
    *("spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
KEY_REFERENCES = {"configMapKeyRef": CONFIG_MAP, "secretKeyRef": SECRET}


def is_known_field(path: str) -> bool:
    return path in FIELDS or _OF_MAP.fullmatch(path) is not None


def container_variables(
    pod: Mapping[str, Any], container: Mapping[str, Any], config: Config, address: str, path: str
) -> dict[str, str]:
    """A container's variables of values, ConfigMaps, Secrets and fields, but no other sources."""
    found: dict[str, str] = {}
    for number, source in enumerate(container.get("envFrom") or ()):
        for field, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
            if source.get(field):
                at = f"{path}.envFrom[{number}].{field}"
                data = find_data(config, kind, source[field], at) or {}
                prefix = source.get("prefix") or ""
                found |= {prefix + key: os.fsdecode(value) for key, value in data.items()}
    for number, variable in enumerate(container.get("env") or ()):
        if source := variable.get("valueFrom"):
            value = _value_from(source, pod, config, address, f"{path}.env[{number}].valueFrom")
        else:
            value = expand(variable.get("value") or "", found)
        if value is not None:
            found[variable["name"]] = value
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces each `$(NAME)` of a known variable; `$$` is a dollar sign."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] else variables.get(found[2], found[0])

    return _REFERENCE.sub(value, text)


def _value_from(
    source: Mapping[str, Any], pod: Mapping[str, Any], config: Config, address: str, path: str
) -> str | None:
    for field, kind in KEY_REFERENCES.items():
        if source.get(field):
            value = find_value(config, kind, source[field], f"{path}.{field}")
            return None if value is None else os.fsdecode(value)
    return _field(pod, (source.get("fieldRef") or {}).get("fieldPath") or "", address)


def _field(pod: Mapping[str, Any], path: str, address: str) -> str | None:
    if found := _OF_MAP.fullmatch(path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    if not is_known_field(path):
        return None
    part, _, name = path.partition(".")
    if part == "status":
        return address if name.startswith("podIP") else LOOPBACK
    default = "default" if name == "serviceAccountName" else ""
    return str((pod.get(part) or {}).get(name) or default)
