"""What the picture of a growth is drawn from, and that it has its words as text."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.torch]  # it imports the agents of the tests

STEPS = [(99.0, 40), (100.5, 41), (101.0, 42), (107.5, 43), (108.0, 44)]


def test_course_begins_with_the_pod() -> None:
    from growth_picture import course, longest_pause

    told = course([(80.0, 1), *STEPS], 101.2)
    assert told[0] == (pytest.approx(-2.2), -2)
    assert told[-1] == (pytest.approx(6.8), 2)
    assert longest_pause(told) == (pytest.approx(-0.2), pytest.approx(6.3))
    assert longest_pause([]) == (0.0, 0.0)


def test_picture_says_how_long_all_waited(tmp_path: Path) -> None:
    from growth_picture import BEFORE, PREPARED, course, draw

    path = tmp_path / "growth.svg"
    quick = [(float(at), at) for at in range(95, 109)]
    draw({BEFORE: course(STEPS, 101.2), PREPARED: course(quick, 101.2)}, path)
    text = path.read_text()
    assert "without prepare: all wait for 6.5 s" in text
    assert "with prepare: all wait for 1.0 s" in text
    assert "the fourth pod starts" in text
