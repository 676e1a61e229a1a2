"""Token buckets, one for each key, bounded in memory. Pure."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MAX_KEYS = 20_000
ROUNDING = 1e-6  # of a request, for a key that has waited as long as asked


class Newest(OrderedDict[Key, Value]):
    """Drops the entry that was set longest ago, to have at most `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class RateLimit(Generic[Key]):
    def __init__(self, per_second: float, burst: float, max_keys: int = MAX_KEYS) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: Newest[Key, tuple[float, float]] = Newest(max_keys)  # what is left, and when

    def admit(self, key: Key, now: float, price: float = 1.0) -> float:
        """Admits a request and returns 0, or returns how many seconds to wait.

        A request is admitted as soon as one with a price of 1 would be; the rest is owed.
        """
        if wait := self.wait_seconds(key, now):
            self._buckets[key] = (self._left(key, now), now)
            return wait
        self.charge(key, price, now)
        return 0.0

    def wait_seconds(self, key: Key, now: float) -> float:
        lacking = 1 - self._left(key, now)
        return lacking / self._per_second if lacking > ROUNDING else 0.0

    def charge(self, key: Key, requests: float, now: float) -> None:
        """Takes requests from a key, which may owe as many as it gets in a second."""
        self._buckets[key] = (max(self._left(key, now) - requests, -self._per_second), now)

    def _left(self, key: Key, now: float) -> float:
        left, since = self._buckets.get(key, (self._burst, now))
        return min(self._burst, left + max(0.0, now - since) * self._per_second)
