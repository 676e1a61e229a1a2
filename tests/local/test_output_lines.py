import pytest
from elastic_pytorch_local.pods.kubelet import BAR_SECONDS, MAX_LINE_BYTES, OutputLines
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc"], ["ab", "c"]),
        ([b"\n\na"], ["", "", "a"]),
        ([b"a\r\nb\r\n"], ["a", "b"]),
        ([b"10 %\r20 %\r30 %\n"], ["30 %"]),
        ([b"\xff\n"], ["\ufffd"]),
        ([b"x" * MAX_LINE_BYTES, b"y\n"], ["x" * MAX_LINE_BYTES + "y"]),
        ([b"x" * (2 * MAX_LINE_BYTES), b"y\n"], ["x" * MAX_LINE_BYTES, "x" * MAX_LINE_BYTES + "y"]),
    ],
)
def test_lines(output: list[bytes], lines: list[str]) -> None:
    found = OutputLines()
    assert [line for data in [*output, b""] for line in found.take(data, 0.0)] == lines


def test_bar_is_shown_now_and_then() -> None:
    found = OutputLines()
    shown = [found.take(f"{number} %\r".encode(), number * BAR_SECONDS / 4) for number in range(10)]
    assert [lines for lines in shown if lines] == [["0 %"], ["4 %"], ["8 %"]]
    assert found.take(b"100 %\n", 9.0) == ["100 %"]


@given(st.lists(st.binary(max_size=20)))
def test_what_is_kept_is_bounded_and_text_without_bars_is_complete(parts: list[bytes]) -> None:
    found = OutputLines()
    text = [part.replace(b"\r", b"") for part in parts]
    lines = [line for data in [*filter(None, text), b""] for line in found.take(data, 0.0)]
    assert "\n".join(lines) == b"".join(text).removesuffix(b"\n").decode(errors="replace")
