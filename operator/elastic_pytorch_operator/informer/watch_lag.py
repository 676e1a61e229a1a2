"""Detects stale watches: every change that a write or a list has shown must also arrive on the watch.

A watch that has died without an error looks like a cluster in which nothing happens. Pure: times are arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.api.manifest import Manifest

GONE = 2**63  # newer than any version


@dataclass(slots=True)
class _Kind:
    reported: dict[str, int] = field(default_factory=dict)  # by UID: the newest version that the watch has reported
    awaited: dict[str, tuple[int, float]] = field(
        default_factory=dict
    )  # by UID: a version that it has yet to report, and since when


@dataclass(slots=True)
class WatchLag:
    """What the watches have reported, and what they have yet to report."""

    _kinds: dict[str, _Kind] = field(default_factory=dict)

    def expect(self, kind: str, manifest: Manifest, now: float) -> None:
        """An object is known to be there in this version: its watch has reported it, or should soon."""
        known, uid, version = self._kinds.setdefault(kind, _Kind()), _uid(manifest), version_of(manifest["metadata"])
        if known.reported.get(uid, -1) < version:
            known.awaited.setdefault(uid, (version, now))

    def observe(self, kind: str, manifest: Manifest, *, gone: bool) -> None:
        """A watch has reported an object, or that it is gone."""
        known, uid = self._kinds.setdefault(kind, _Kind()), _uid(manifest)
        version = GONE if gone else version_of(manifest["metadata"])
        known.reported[uid] = max(version, known.reported.get(uid, -1))
        if uid in known.awaited and version >= known.awaited[uid][0]:
            del known.awaited[uid]

    def restart(self, uid: str) -> None:
        """An object's versions begin again, lower than before: what was reported of it does not count."""
        for known in self._kinds.values():
            known.reported.pop(uid, None)
            known.awaited.pop(uid, None)

    def forget_others(self, kind: str, uids: set[str]) -> None:
        """Drops all objects of a kind but these, which are all there are."""
        known = self._kinds.setdefault(kind, _Kind())
        known.reported = {uid: version for uid, version in known.reported.items() if uid in uids}
        known.awaited = {uid: found for uid, found in known.awaited.items() if uid in uids}

    def silent_since(self) -> Mapping[str, float]:
        """By kind: since when a watch should have reported something."""
        kinds = {kind: known.awaited.values() for kind, known in self._kinds.items() if known.awaited}
        return {kind: min(since for _, since in awaited) for kind, awaited in kinds.items()}


def version_of(metadata: Manifest) -> int:
    """The resource version as a number, which grows with each write (Kubernetes guarantees the comparison since 1.35)."""
    version = str(metadata.get("resourceVersion", "0"))
    return int(version) if version.isdigit() else 0


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("uid", ""))
