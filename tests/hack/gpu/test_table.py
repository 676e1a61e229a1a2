"""The table of a run, and the lines that its rows come in."""

from gpu.measurements import MEASUREMENTS
from gpu.table import Row, failed, from_lines, lay_out, to_line

GROWN = Row("grown", "120M", "in_process", "0.23", "0.11", "0", "kept", "from 2 pods to 3")


def test_rows_come_as_lines_among_others() -> None:
    text = f"a warning of torch\n{to_line(GROWN)}\n[1]\n" + '{"what": "of another program"}\n{"what": "cut o'
    assert from_lines(text) == [GROWN]


def test_columns_are_as_wide_as_their_cells() -> None:
    lines = lay_out([GROWN, failed("lost", "1B", "plain", "RuntimeError: a|b\n  and more")]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].replace("-", "") == "|" * 9
    assert lines[2].startswith("| grown        | 120M  | in_process | 0.23 ")
    assert "FAILED: RuntimeError: a/b and more" in lines[3]


def test_error_is_cut_at_its_begin() -> None:
    assert failed("", "", "", "x" * 500 + " the cause").remark.endswith(" the cause")
    assert len(failed("", "", "", "x" * 500).remark) < 200


def test_no_measurements_are_called_the_same() -> None:
    titles = [(m.title, m.how, m.large) for m in MEASUREMENTS.values()]
    assert len(set(titles)) == len(titles)
