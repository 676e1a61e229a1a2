"""Two lists of what is ready, the urgent one first. A key is in one of them at most."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

URGENT_IN_A_ROW = 8  # before one that is not urgent is taken, if there is one: it may have waited for long


class ReadyLists(Generic[Key]):
    """Keys in the order in which they were added: the urgent ones first, and one of the others after each few of those."""

    def __init__(self) -> None:
        self._urgent: OrderedDict[Key, None] = OrderedDict()
        self._others: OrderedDict[Key, None] = OrderedDict()
        self._in_a_row = 0

    def __len__(self) -> int:
        return len(self._urgent) + len(self._others)

    def __contains__(self, key: Key) -> bool:
        return key in self._urgent or key in self._others

    def add(self, key: Key, *, urgent: bool) -> None:
        """Adds a key behind the others. One that is there keeps its place, unless it becomes urgent."""
        if key in self._urgent:
            return
        if urgent:
            self._others.pop(key, None)
            self._urgent[key] = None
        else:
            self._others.setdefault(key)

    def discard(self, key: Key) -> None:
        """Removes a key, if it is there."""
        self._urgent.pop(key, None)
        self._others.pop(key, None)

    def pop(self) -> Key:
        """Takes the next key out.

        Raises:
            KeyError: there is none.
        """
        if self._urgent and not (self._others and self._in_a_row >= URGENT_IN_A_ROW):
            self._in_a_row += 1
            return self._urgent.popitem(last=False)[0]
        self._in_a_row = 0
        return self._others.popitem(last=False)[0]
