"""The objects that cannot be read: each is told once, and counted for as long as it is there.

An object is what its author has made of it. A fault in one must not hide the others, so each is read by itself.
"""

import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.informer.identity import identify
from elastic_pytorch_operator.spec.fields import MAX_WORDS

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class UnreadableObjects:
    """Those that are there now."""

    _uids: dict[str, set[str]] = field(default_factory=dict)  # by kind; a kind without any is left out

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there are, by kind."""
        return {kind: len(uids) for kind, uids in self._uids.items()}

    def note(self, kind: str, manifest: object, fault: Exception) -> None:
        """An object cannot be read. Only the first time is logged, until it can be read again."""
        found = identify(manifest)
        known = self._uids.setdefault(kind, set())
        if found.uid not in known:
            known.add(found.uid)
            logger.error(
                "cannot read an object, which is left out: %s",
                f"{type(fault).__name__}: {fault}"[:MAX_WORDS],
                extra={"kind": kind, "object": f"{found.namespace}/{found.name}", "uid": found.uid, "version": found.version},
            )

    def forget(self, kind: str, uid: str) -> None:
        """An object has been read, or is gone."""
        if uid in self._uids.get(kind, ()):
            self._keep(kind, self._uids[kind] - {uid})

    def forget_others(self, kind: str, uids: Container[str]) -> None:
        """Drops all objects of a kind but these, which are all there are."""
        if kind in self._uids:
            self._keep(kind, {uid for uid in self._uids[kind] if uid in uids})

    def _keep(self, kind: str, uids: set[str]) -> None:
        if uids:
            self._uids[kind] = uids
        else:
            del self._uids[kind]
