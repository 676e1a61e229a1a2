"""The out-of-memory killer's count."""

from pathlib import Path

from elastic_pytorch.failures.oom_kills import OomKills


def test_counts_what_came_since(tmp_path: Path) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom 1\noom_kill 2\n")
    kills = OomKills((tmp_path / "absent", counter))
    assert not kills.happened()
    counter.write_text("oom 1\noom_kill 3\noom_group_kill 0\n")
    assert kills.happened()
    assert not kills.happened()


def test_machine_without_a_counter_has_had_none(tmp_path: Path) -> None:
    assert not OomKills((tmp_path / "absent",)).happened()
