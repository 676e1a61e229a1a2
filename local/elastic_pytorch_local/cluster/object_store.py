"""Objects in memory, with UIDs, resource versions and watches."""

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, copied
from elastic_pytorch_operator.cluster.interface import Change, ClusterError

# kind, type (ADDED, MODIFIED, DELETED), the object
Watcher = Callable[[str, str, MutableManifest], None]


class ObjectStore:
    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], MutableManifest] = {}
        self._watchers: list[Watcher] = []
        self._versions = itertools.count(1)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def show_all(self, watcher: Watcher) -> None:
        for (kind, _, _), found in sorted(self._objects.items()):
            watcher(kind, "ADDED", copied(found))

    def _list(self, kind: str, namespace: str = "") -> list[Any]:
        keys = sorted(key for key in self._objects if key[0] == kind)
        return [copied(self._objects[key]) for key in keys if namespace in ("", key[1])]

    def _get(self, kind: str, namespace: str, name: str) -> MutableManifest:
        try:
            return self._objects[kind, namespace, name]
        except KeyError:
            raise ClusterError(404, f'{kind} "{name}" not found') from None

    def _check_name(self, kind: str, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        if (kind, metadata["namespace"], metadata["name"]) in self._objects:
            raise ClusterError(409, f'{kind} "{metadata["name"]}" already exists')

    def _put(self, kind: str, namespace: str, found: MutableManifest) -> MutableManifest:
        found["kind"] = kind
        found["metadata"] = {**found["metadata"], "uid": random.randbytes(8).hex()}
        self._objects[kind, namespace, found["metadata"]["name"]] = found
        self._changed(kind, "ADDED", found)
        return found

    def _remove(self, kind: str, namespace: str, name: str) -> MutableManifest:
        found = self._get(kind, namespace, name)
        del self._objects[kind, namespace, name]
        self._changed(kind, "DELETED", found)
        return found

    def _changed(self, kind: str, change: str, found: MutableManifest) -> None:
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        for watcher in self._watchers:
            watcher(kind, change, copied(found))


def check_version(found: MutableManifest, version: str) -> None:
    if version != found["metadata"]["resourceVersion"]:
        raise ClusterError(409, f'{found["kind"]} "{found["metadata"]["name"]}" has been modified')


def apply_patch(found: Manifest, change: Change) -> MutableManifest:
    """The fields of a changed object: those that a merge patch names, or all."""
    if isinstance(change, Mapping):
        return apply_merge_patch({name: found[name] for name in change if name in found}, change)
    changed = copied(dict(found))
    for operation in change:
        *way, last = operation["path"].split("/")[1:]
        place: Any = changed
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        place[last] = operation["value"]
    return changed


def apply_merge_patch(old: Manifest, patch: Manifest) -> MutableManifest:
    """An object after a JSON merge patch (RFC 7386); it shares what stays with the old one."""
    merged = {name: value for name, value in old.items() if name not in patch}
    for name, value in patch.items():
        if isinstance(value, dict):
            before = old.get(name)
            merged[name] = apply_merge_patch(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            merged[name] = copied(value)
    return merged
