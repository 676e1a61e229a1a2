"""Detects what watches miss: each change that a write or a list has shown must arrive on them, too.

A dead watch without an error looks like a quiet cluster. A watch begins with all that there is, and
never reports what was gone by then: a list has to show that. Pure.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.informer.changes import identify

GONE = 2**63  # newer than any version
# Without a further object, after which a watch has reported all that it began with.
BEGIN_SECONDS = 1.0
# After an error: kopf tries for some minutes before the next one, and the alert waits for ten.
FAILING_SECONDS = 400.0
# In which a watch that has failed begins again, if the API server answers.
BEGIN_AGAIN_SECONDS = 5.0
MIN_LIST_SECONDS = 60.0  # between two lists for the sake of watches that fail


@dataclass(slots=True)
class _Watch:
    heard_at: float = -math.inf
    failed_at: float = -math.inf  # the last error; -inf: it has reported something since
    reported: dict[str, int] = field(default_factory=dict)  # the newest version, by UID
    # By UID, a version that it has yet to report, and since when.
    awaited: dict[str, tuple[int, float]] = field(default_factory=dict)


@dataclass(slots=True)
class WatchLag:
    by_namespace: bool = False  # each namespace has watches of its own
    began_at: float = -math.inf  # when a watch last reported an object from its beginning
    _listed_at: float = -math.inf
    _begun_again_at: float = -math.inf
    _list_due_at: float = math.inf  # because of that
    # By kind, and by namespace if each has its own.
    _watches: dict[tuple[str, str], _Watch] = field(default_factory=dict)

    def expect(self, kind: str, manifest: Manifest, now: float) -> None:
        """The watch of an object that exists has reported this version, or should soon."""
        found = identify(manifest)
        watch, uid, version = self._watch(kind, found.namespace), found.uid, found.version
        if watch.reported.get(uid, -1) < version:
            watch.awaited.setdefault(uid, (version, now))

    def observe(
        self, kind: str, manifest: Manifest, now: float, *, gone: bool, begins: bool = False
    ) -> None:
        """A watch has reported an object; `gone`: its deletion; `begins`: as it began."""
        if begins:
            self.began_at = now
        found = identify(manifest)
        watch, uid = self._watch(kind, found.namespace), found.uid
        version = GONE if gone else found.version
        watch.heard_at, watch.failed_at = now, -math.inf
        watch.reported[uid] = max(version, watch.reported.get(uid, -1))
        if uid in watch.awaited and version >= watch.awaited[uid][0]:
            del watch.awaited[uid]

    def restart(self, uid: str) -> None:
        for watch in self._watches.values():
            watch.reported.pop(uid, None)
            watch.awaited.pop(uid, None)

    def forget_others(self, kind: str, uids: set[str]) -> None:
        for (watched, _), watch in self._watches.items():
            if watched == kind:
                watch.reported = {
                    uid: version for uid, version in watch.reported.items() if uid in uids
                }
                watch.awaited = {uid: found for uid, found in watch.awaited.items() if uid in uids}

    def fails(self, kind: str, namespace: str, now: float) -> None:
        """A watch has ended with an error, and may be silent until it reports something."""
        self._watch(kind, namespace).failed_at = now

    def begins_again(self, now: float) -> None:
        """A list has to show what was deleted since the watch ended."""
        self._begun_again_at = now
        self._list_due_at = min(
            self._list_due_at, max(now + BEGIN_AGAIN_SECONDS, self._listed_at + MIN_LIST_SECONDS)
        )

    def listed(self, began_at: float) -> None:
        self._listed_at = began_at
        if self._list_due_at < math.inf:
            complete = began_at >= self._begun_again_at + BEGIN_AGAIN_SECONDS
            self._list_due_at = math.inf if complete else began_at + MIN_LIST_SECONDS

    def missed(self, now: float) -> bool:
        """Whether a list is due, because something may be gone that no watch will report."""
        return now >= self._list_due_at or (
            now >= self.began_at + BEGIN_SECONDS
            and self._listed_at < self.began_at
            and any(
                since < self.began_at
                for watch in self._watches.values()
                for _, since in watch.awaited.values()
            )
        )

    def failing(self, now: float) -> set[str]:
        """The namespaces with a failing watch of their own; one that lasts has begun again."""
        return {
            place
            for (_, place), watch in self._watches.items()
            if place and now < watch.failed_at + FAILING_SECONDS
        }

    def silent_since(self) -> Mapping[str, float]:
        """By kind: since when a watch has reported nothing, although it should have.

        A failing watch of one namespace is left out: a restart would harm the others.
        """
        found: dict[str, float] = {}
        for (kind, namespace), watch in self._watches.items():
            if watch.awaited and not (watch.failed_at > -math.inf and namespace):
                silent = max(watch.heard_at, min(since for _, since in watch.awaited.values()))
                found[kind] = min(silent, found.get(kind, silent))
        return found

    def _watch(self, kind: str, namespace: str) -> _Watch:
        return self._watches.setdefault((kind, namespace if self.by_namespace else ""), _Watch())
