"""Detects what watches miss: every change that a write or a list has shown must also arrive on the watch.

A watch that has died without an error looks like a cluster in which nothing happens. One that is late, as ten thousand pods were created at
once, still reports: it is not silent, and another process would be later still.

A watch begins with all that there is. What was listed before, and is gone by then, it never reports. Pure: times are arguments.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.api.manifest import Manifest

GONE = 2**63  # newer than any version
BEGIN_SECONDS = 1.0  # without a further object that was there when its watch began: then all have been reported


@dataclass(slots=True)
class _Watch:
    heard_at: float = -math.inf  # when it last reported anything
    reported: dict[str, int] = field(default_factory=dict)  # by UID: the newest version that the watch has reported
    awaited: dict[str, tuple[int, float]] = field(
        default_factory=dict
    )  # by UID: a version that it has yet to report, and since when


@dataclass(slots=True)
class WatchLag:
    """What the watches have reported, and what they have yet to report.

    Attributes:
        by_namespace: each namespace has watches of its own.
        began_at: when a watch last reported an object that was there when it began.
    """

    by_namespace: bool = False
    began_at: float = -math.inf
    _watches: dict[tuple[str, str], _Watch] = field(default_factory=dict)  # by kind, and by namespace if each has its own

    def expect(self, kind: str, manifest: Manifest, now: float) -> None:
        """An object is known to be there in this version: its watch has reported it, or should soon."""
        watch, uid, version = self._watch(kind, manifest), _uid(manifest), version_of(manifest["metadata"])
        if watch.reported.get(uid, -1) < version:
            watch.awaited.setdefault(uid, (version, now))

    def observe(self, kind: str, manifest: Manifest, now: float, *, gone: bool, begins: bool = False) -> None:
        """A watch has reported an object, or that it is gone.

        Args:
            kind: of the watch.
            manifest: the object.
            now: monotonic seconds.
            gone: it is gone.
            begins: it was there when the watch began.
        """
        if begins:
            self.began_at = now
        watch, uid = self._watch(kind, manifest), _uid(manifest)
        version = GONE if gone else version_of(manifest["metadata"])
        watch.heard_at = now
        watch.reported[uid] = max(version, watch.reported.get(uid, -1))
        if uid in watch.awaited and version >= watch.awaited[uid][0]:
            del watch.awaited[uid]

    def restart(self, uid: str) -> None:
        """An object's versions begin again, lower than before: what was reported of it does not count."""
        for watch in self._watches.values():
            watch.reported.pop(uid, None)
            watch.awaited.pop(uid, None)

    def forget_others(self, kind: str, uids: set[str]) -> None:
        """Drops all objects of a kind but these, which are all there are."""
        for (watched, _), watch in self._watches.items():
            if watched == kind:
                watch.reported = {uid: version for uid, version in watch.reported.items() if uid in uids}
                watch.awaited = {uid: found for uid, found in watch.awaited.items() if uid in uids}

    def missed(self, now: float) -> bool:
        """Whether the watches have begun since something was listed that none of them has reported: it may be gone."""
        return now >= self.began_at + BEGIN_SECONDS and any(
            since < self.began_at for watch in self._watches.values() for _, since in watch.awaited.values()
        )

    def silent_since(self) -> Mapping[str, float]:
        """By kind: since when a watch has reported nothing, although it should have."""
        found: dict[str, float] = {}
        for (kind, _), watch in self._watches.items():
            if watch.awaited:
                silent = max(watch.heard_at, min(since for _, since in watch.awaited.values()))
                found[kind] = min(silent, found.get(kind, silent))
        return found

    def _watch(self, kind: str, manifest: Manifest) -> _Watch:
        namespace = manifest["metadata"].get("namespace", "") if self.by_namespace else ""
        return self._watches.setdefault((kind, namespace), _Watch())


def version_of(metadata: Manifest) -> int:
    """The resource version as a number, which grows with each write (Kubernetes guarantees the comparison since 1.35)."""
    version = str(metadata.get("resourceVersion", "0"))
    return int(version) if version.isdigit() else 0


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("uid", ""))
