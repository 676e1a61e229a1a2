from typing import Any

import pytest
from elastic_pytorch.operator_link.retry import RefusedError
from elastic_pytorch.operator_link.stream import AnswerReader, refusal_of
from hypothesis import given
from hypothesis import strategies as st

from tests.situations import situations

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@situations(
    "chunks,lines",
    {
        "a line that has not ended": ((b"one\ntw",), [b"one"]),
        "a line with the end of a chunk in it": ((b"a\r\nb\n",), [b"a\r", b"b"]),
    },
)
def test_lines_of_an_answer(chunks: tuple[bytes, ...], lines: list[bytes]) -> None:
    reader = AnswerReader()
    assert reader.feed(HEAD + b"".join(map(chunk, chunks))) == lines
    assert not reader.ended
    reader.feed(chunk(b""))
    assert reader.ended


@given(
    st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"\r")), max_size=8),
    st.data(),
)
def test_it_does_not_matter_where_packets_end(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)))))
    chunks = [
        text[begin:end]
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
        if text[begin:end]
    ]
    sent = HEAD + b"".join(map(chunk, chunks))
    packets = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1))))
    reader, found = AnswerReader(), []
    for begin, end in zip([0, *packets], [*packets, len(sent)], strict=True):
        found += reader.feed(sent[begin:end])
    assert found == lines


REFUSALS = {  # an answer, the status, what is said of it, and the pause that it asks for
    "with a reason and a pause": (
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 19\r\n\r\n"
        b'{"error": "starts"}',
        "503 'starts'",
        2.0,
    ),
    "without a body": (
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "404 'Not Found'",
        None,
    ),
    "with nothing of what it could have": (b"HTTP/1.0 500\r\n\r\n", "500 ''", None),
    "with a pause that is none": (
        b"HTTP/1.1 429 Slow\r\nRetry-After: nan\r\n\r\n",
        "429 'Slow'",
        None,
    ),
}


@situations("answer,said,pause", REFUSALS)
def test_refusals(answer: bytes, said: str, pause: float | None) -> None:
    reader = AnswerReader()
    assert reader.feed(answer[:-1]) == [] or not answer.endswith(b"}")
    with pytest.raises(RefusedError) as refusal:
        reader.feed(answer[-1:])
    assert (str(refusal.value), refusal.value.retry_after) == (said, pause)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"welcome\r\n",
        HEAD + b"-1\r\n",
    ],
)
def test_what_is_no_stream(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        AnswerReader().feed(answer)


def test_endless_head_and_endless_line_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_pytorch.operator_link.stream.MAX_BYTES", 1000)
    for sent in (b"x" * 1001, HEAD + chunk(b"x" * 600) * 2, HEAD + b"0" * 1001):
        with pytest.raises(ValueError, match="more than 1000 bytes"):
            AnswerReader().feed(sent)


REFUSED_LINES = {
    "with all": (
        {"status": 503, "error": "another one leads", "retrySeconds": 1},
        503,
        "503 'another one leads'",
        1.0,
    ),
    "without a pause": (
        {"status": 400, "error": "x\n" * 1000},
        400,
        "400 '" + r"x\n" * 250 + "'",
        None,
    ),
    "with garbage": ({"status": "many", "retrySeconds": {}}, 0, "0 'None'", None),
}


@situations("fields,status,said,pause", REFUSED_LINES)
def test_refusals_within_a_stream(
    fields: dict[str, Any], status: int, said: str, pause: float | None
) -> None:
    refusal = refusal_of(fields)
    assert (refusal.status, str(refusal), refusal.retry_after) == (status, said, pause)
