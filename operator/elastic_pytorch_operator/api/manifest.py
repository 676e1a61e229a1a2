"""The objects of the Kubernetes API as plain JSON. Pure.

A list is read as it comes, one object after the other: a page may hold hundreds of objects of
megabytes each, and in memory an object takes up to 24 times the bytes of its JSON.
"""

import codecs
import json
import re
from collections.abc import AsyncIterable, Callable, Mapping
from typing import Any, TypeVar, cast

Manifest = Mapping[str, Any]  # an object, or a part of one, that is only read
MutableManifest = dict[str, Any]
Json = TypeVar("Json")


def copied(value: Json) -> Json:
    """A deep copy of JSON, several times faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        return cast(Json, {name: copied(field) for name, field in value.items()})
    if isinstance(value, list):
        return cast(Json, [copied(item) for item in value])
    return value


def append(holder: MutableManifest, field: str, *items: Manifest) -> None:
    """Adds items, if any, to a list that may be missing or null."""
    if items:
        holder[field] = [*(holder.get(field) or ()), *items]


# A list's own metadata stands before its items or behind them.
_ITEMS = re.compile(r'"items"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")

Reduce = Callable[[Manifest], Manifest]


async def read_list(pieces: AsyncIterable[bytes], reduce: Reduce) -> Any:
    """A list whose JSON comes in pieces, of reduced objects; ValueError: it is no JSON."""
    reader = _ListReader(reduce)
    async for piece in pieces:
        reader.feed(piece)
    return reader.close()


class _ListReader:
    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        self._read_item = json.JSONDecoder().raw_decode
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._items: list[Manifest] = []
        self._before: str | None = None  # all before the first item; None: it has not come yet
        self._ended = False
        self._text = ""
        self._tried = 0  # characters of an object that was not complete

    def feed(self, piece: bytes, *, last: bool = False) -> None:
        self._text += self._decoder.decode(piece, last)
        if self._before is None and (found := _ITEMS.search(self._text)) is not None:
            self._before, self._text = self._text[: found.end()], self._text[found.end() :]
        if self._before is not None and not self._ended:
            self._read_items(last=last)

    def _read_items(self, *, last: bool) -> None:
        at = 0
        # An incomplete object is read again once twice as much of it has come.
        while last or len(self._text) - at >= 2 * self._tried:
            at = _BETWEEN.match(self._text, at).end()  # type: ignore[union-attr]
            if at == len(self._text) or self._text[at] == "]":
                self._ended = at < len(self._text)
                break
            try:
                found, end = self._read_item(self._text, at)
            except ValueError:
                if last:
                    raise
                self._tried = len(self._text) - at
                break
            self._items.append(self._reduce(found))
            self._tried, at = 0, end
        self._text = self._text[at:]

    def close(self) -> Any:
        self.feed(b"", last=True)
        found = json.loads((self._before or "") + self._text)
        return found if self._before is None else {**found, "items": self._items}
