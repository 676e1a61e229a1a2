"""What processes of a recorded job tell becomes steps of groups, and figures cells of a table."""

import json
from pathlib import Path

import pytest
from elastic_pytorch_local.faults.steps import Step
from measure import markdown
from measure.figures import spread
from measure.recorded_job import Recorded, objects_of


def test_whole_objects_are_found_wherever_in_a_line_they_stand() -> None:
    lines: dict[str, list[dict[str, object]]] = {
        '{"what": "step", "at": 1}': [{"what": "step", "at": 1}],
        '{"what": "st{"what": "step", "at": 1}{"what": "done"}': [
            {"what": "step", "at": 1},
            {"what": "done"},
        ],
        'Traceback {"what": "done"} "what": 3': [{"what": "done"}],
        '{"what": "step", "at": 1': [],
        '{"what": ' * 10_000: [],
        '{"what": ' + "[" * 100_000: [],
        '{"what": ' + "9" * 5000 + "}": [],
        "\ufffd\x00": [],
    }
    assert [objects_of(line) for line in lines] == list(lines.values())


def test_steps_of_rank_0_have_the_group_that_it_has_joined(tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl"
    recorded = Recorded(file)
    assert recorded.steps() == []
    told = [
        ("began", 0, 1.0, "a"),
        ("step", 0, 2.0, "a"),
        ("began", 1, 2.1, "b"),
        ("began", 0, 3.0, "b"),
        ("step", 0, 4.0, "b"),
    ]
    lines = [
        {"what": what, "RANK": rank, "at": at, "worker": pod, "step": 7, "WORLD_SIZE": 2}
        for what, rank, at, pod in told
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"what": "step", "at"')
    assert (
        recorded.steps() == recorded.steps() == [Step(2.0, "a", 7, 2, 1), Step(4.0, "b", 7, 2, 2)]
    )


def test_cell_has_fewer_digits_for_larger_values_and_a_page_what_is_in_its_markers() -> None:
    cells = {
        (0.314,): "0.31 (0.31)",
        (1.0, 2.0, 9.99): "2.00 (9.99)",
        (1.0, 10.0): "5.5 (10.0)",
        (2.0, 1234.5): "618 (1,234)",
    }
    assert {values: markdown.spread(values, None) for values in cells} == cells
    assert (markdown.spread([], None), markdown.spread([3.0, 20.0], 0)) == ("-", "12 (20)")
    spreads = [spread(values, 90) for values in ([], [2.0004], range(100, 0, -1), range(10))]
    assert spreads == [None, (2, 2, 2), (50.5, 90, 100), (4.5, 8, 9)]
    found = markdown.table(("job", "pause"), [("plain", "1")]).splitlines()
    assert found == ["| job | pause |", "| --- | --- |", "| plain | 1 |"]
    text = "before\n<begin>\nold\n<end>\nafter\n"
    assert markdown.page(text, "<begin>\n", "<end>\n", "new\n") == text.replace("old", "new")
    for lacking in ("", "<begin>\n", "<end>\n<begin>\n"):
        with pytest.raises(ValueError, match="lacks the lines <begin> and <end>"):
            markdown.page(lacking, "<begin>\n", "<end>\n", "")
