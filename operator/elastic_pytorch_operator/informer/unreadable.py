"""The objects that cannot be read: each is logged once, and counted while it is there."""

import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.informer.changes import identify
from elastic_pytorch_operator.informer.owned_objects import Owner
from elastic_pytorch_operator.informer.pod_views import job_of_pod
from elastic_pytorch_operator.informer.workload_views import job_of_workload
from elastic_pytorch_operator.model.observed import UnreadableObject
from elastic_pytorch_operator.spec.fields import MAX_WORDS

logger = logging.getLogger(__name__)

OWNERS: Mapping[str, Callable[[Manifest], Owner | None]] = {
    "Pod": job_of_pod,
    kueue.WORKLOAD: job_of_workload,
}


@dataclass(slots=True)
class UnreadableObjects:
    # By kind and UID; a kind without any is left out.
    _owners: dict[str, dict[str, Owner | None]] = field(default_factory=dict)
    _of_owner: dict[Owner, dict[str, UnreadableObject]] = field(default_factory=dict)  # by UID

    @property
    def counts(self) -> Mapping[str, int]:
        return {kind: len(uids) for kind, uids in self._owners.items()}

    def of(self, owner: Owner) -> tuple[UnreadableObject, ...]:
        return tuple(self._of_owner.get(owner, {}).values())

    def note(self, kind: str, manifest: object, fault: Exception) -> Owner | None:
        """Returns the object's job, the first time."""
        found = identify(manifest)
        known = self._owners.setdefault(kind, {})
        if found.uid in known:
            return None
        words = f"{type(fault).__name__}: {fault}"[:MAX_WORDS]
        owner = known[found.uid] = _owner_of(kind, manifest)
        if owner is not None:
            self._of_owner.setdefault(owner, {})[found.uid] = UnreadableObject(
                kind, found.name, words
            )
        logger.error(
            "cannot read an object, which is left out: %s",
            words,
            extra={
                "kind": kind,
                "object": f"{found.namespace}/{found.name}",
                "uid": found.uid,
                "version": found.version,
            },
        )
        return owner

    def forget(self, kind: str, uid: str) -> None:
        uids = self._owners.get(kind, {})
        if uid not in uids:
            return
        owner = uids.pop(uid)
        if not uids:
            del self._owners[kind]
        if owner is not None:
            objects = self._of_owner[owner]
            del objects[uid]
            if not objects:
                del self._of_owner[owner]

    def forget_others(self, kind: str, uids: Container[str]) -> None:
        for uid in [uid for uid in self._owners.get(kind, ()) if uid not in uids]:
            self.forget(kind, uid)


def _owner_of(kind: str, manifest: object) -> Owner | None:
    read = OWNERS.get(kind)
    try:
        owner = read(manifest) if read is not None and isinstance(manifest, Mapping) else None
        hash(owner)
    except Exception:
        return None
    return owner
