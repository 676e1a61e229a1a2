"""Keeps what was deleted from coming back with an older list, a late answer or a late watch."""

from dataclasses import dataclass, field

TOMBSTONE_SECONDS = 60.0  # longer than any answer or watch is late
MAX_TOMBSTONES = 50_000  # some 10 MiB


@dataclass(slots=True)
class Tombstones:
    most: int = MAX_TOMBSTONES
    _deleted_at: dict[str, float] = field(default_factory=dict)  # by UID, the oldest first

    def leave(self, uid: str, now: float) -> None:
        """An object is gone. One without a UID looks like others."""
        if uid:
            self._deleted_at.pop(uid, None)
            self._deleted_at[uid] = now
            if len(self._deleted_at) > self.most:
                del self._deleted_at[next(iter(self._deleted_at))]

    def admit(self, uid: str, now: float, *, listed: bool) -> bool:
        """Whether an object may be there that was reported now, or by a list that began now.

        If a list began after the deletion, the object is back: etcd was restored from a backup.
        """
        if uid not in self._deleted_at:
            return True
        if not listed or self._deleted_at[uid] >= now:
            return False
        del self._deleted_at[uid]
        return True

    def expire(self, now: float) -> None:
        self._deleted_at = {
            uid: at for uid, at in self._deleted_at.items() if at >= now - TOMBSTONE_SECONDS
        }
