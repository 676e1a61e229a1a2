import pytest
from measure import markdown


@pytest.mark.parametrize(
    ("values", "digits", "cell"),
    [
        ([], None, "-"),
        ([0.314], None, "0.31 (0.31)"),
        ([1.0, 2.0, 9.99], None, "2.00 (9.99)"),
        ([1.0, 10.0], None, "5.5 (10.0)"),
        ([2.0, 1234.5], None, "618 (1,234)"),
        ([3.0, 20.0], 0, "12 (20)"),
    ],
)
def test_the_larger_the_worst_value_the_fewer_digits(values: list[float], digits: int | None, cell: str) -> None:
    assert markdown.spread(values, digits) == cell


def test_table_has_a_line_for_each_row_below_its_head() -> None:
    assert markdown.table(("job", "pause"), [("plain", "1"), ("library", "2")]).splitlines() == [
        "| job | pause |",
        "| --- | --- |",
        "| plain | 1 |",
        "| library | 2 |",
    ]


def test_block_between_the_markers_is_replaced_and_nothing_else() -> None:
    text = "before\n<begin>\nold\n<end>\nafter\n"
    assert markdown.page(text, "<begin>\n", "<end>\n", "new\n") == text.replace("old", "new")


@pytest.mark.parametrize("text", ["", "<begin>\n", "<end>\n", "<end>\n<begin>\n"])
def test_page_without_both_markers_in_their_order_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lacks the lines <begin> and <end>"):
        markdown.page(text, "<begin>\n", "<end>\n", "")
