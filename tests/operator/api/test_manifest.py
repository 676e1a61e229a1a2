import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from elastic_pytorch_operator.api.manifest import read_list

from tests.situations import situations

ITEMS: list[Any] = [
    {"name": 'x]}{\\"é€\U0001f600' * n, "values": [{}, [], None, 1.5] * n, "items": [n]}
    for n in range(20)
]
LIST = {"kind": "PodList", "metadata": {"resourceVersion": "1", "continue": "é"}, "items": ITEMS}


async def pieces(text: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


@pytest.mark.parametrize("size", [1, 7, 100, 1_000_000])
@situations(
    "text",
    {
        "pods": json.dumps(LIST, separators=(",", ":"), ensure_ascii=False),
        "escaped": json.dumps(LIST, separators=(",", ":")),
        "custom resources": json.dumps({name: LIST[name] for name in sorted(LIST)}, indent=2),
        "empty": '{"items":[],"metadata":{}}',
        "null": '{"kind":"PodList","items":null}',
        "no list": '{"message":"no list"}',
    },
)
async def test_list_is_what_its_json_says(text: str, size: int) -> None:
    assert await read_list(pieces(text.encode(), size), lambda found: found) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>",
        b'{"items":[{}',
        b'{"items":[{]}',
        b'{"items":[{}]',
        b'{"items":[{}x]}',
        b"\xff",
    ],
)
async def test_what_is_no_json_is_told(text: bytes) -> None:
    with pytest.raises(ValueError):
        await read_list(pieces(text, 3), lambda found: found)


async def test_no_more_than_one_object_of_a_list_is_in_memory() -> None:
    large = json.dumps({"name": "large", "values": [{}] * 100_000}, separators=(",", ":")).encode()

    async def of_many(count: int) -> AsyncIterator[bytes]:
        yield b'{"items":['
        for number in range(count):
            yield large if not number else b"," + large
        yield b"]}"

    peaks = []
    for count in (1, 20):
        tracemalloc.start()
        found = await read_list(of_many(count), lambda found: {"name": found["name"]})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found == {"items": [{"name": "large"}] * count}
    assert peaks[1] < 1.5 * peaks[0]
