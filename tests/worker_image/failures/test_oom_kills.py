from pathlib import Path

import pytest
from elastic_pytorch.failures.oom_kills import OomKills, tell_group_kill


def test_counts_what_came_since(tmp_path: Path) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom 1\noom_kill 2\n")
    kills = OomKills((tmp_path / "absent", counter))
    assert not kills.happened()
    counter.write_text("oom 1\noom_kill 3\noom_group_kill 0\n")
    assert kills.happened()
    assert not kills.happened()


@pytest.mark.parametrize(("text", "told"), [("1\n", True), ("0\n", False), (None, False)])
def test_group_kill_is_told_once(
    tmp_path: Path, text: str | None, told: bool, log: pytest.LogCaptureFixture
) -> None:
    setting = tmp_path / "memory.oom.group"
    if text is not None:
        setting.write_text(text)
    tell_group_kill(setting)
    assert sum("singleProcessOOMKill" in text for text in log.messages) == told


def test_machine_without_a_counter_has_had_none(tmp_path: Path) -> None:
    assert not OomKills((tmp_path / "absent",)).happened()
