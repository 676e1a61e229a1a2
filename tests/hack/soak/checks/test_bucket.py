"""What counts as a broken promise of a bucket."""

from dataclasses import replace

import pytest
from soak.checks.bucket import check_bucket
from soak.checks.training import Expected
from soak.timeline import Hit, Step, Stored, read_stored

BUCKET = Expected("bucket", minimum=1, maximum=3, processes=1, total=6, bucket=True)
BEHIND, LOAD, LAST = "no group begins behind a stored checkpoint", "a checkpoint can be loaded", "the last step is stored"


def steps(begin: int) -> list[Step]:
    """A group that dies after step 4, at 104 s, and one that begins at 110 s."""
    first = [Step(100.0 + number, "bucket-worker-0-a", 0, 1, number, 1) for number in range(1, 5)]
    return first + [Step(110.0 + number - begin, "bucket-worker-0-b", 0, 1, number, 2) for number in range(begin, 7)]


def stored(step: int, at: float, generation: int = 1) -> Stored:
    return Stored(at, (generation, step))


THREE, SIX = stored(3, 103.5), stored(6, 117, 2)


@pytest.mark.parametrize(
    ("begin", "notes", "hits", "rules"),
    [
        (4, [THREE, SIX], [], []),
        (5, [THREE, SIX], [], []),
        (3, [THREE, SIX], [], [BEHIND]),
        (3, [THREE, SIX], [Hit(103, 112, "cut-node", "cut")], []),
        (3, [stored(3, 105), SIX], [], []),
        (4, [THREE], [], [LAST]),
        (4, [THREE], [Hit(110, 116, "refuse-requests", "503", frozenset({"bucket"}))], []),
        (4, [THREE], [Hit(110, 116, "stop-dns", "dns")], []),
        (4, [THREE], [Hit(110, 116, "refuse-writes", "folder", frozenset({"library"}))], [LAST]),
        (4, [Stored(99, None, read=True), THREE, Stored(104, (1, 3), read=True), SIX], [], []),
        (4, [THREE, Stored(104, None, read=True), SIX], [], [LOAD]),
        (4, [stored(2, 102), THREE, Stored(104, (1, 2), read=True), SIX], [], [LOAD]),
    ],
)
def test_bucket(begin: int, notes: list[Stored], hits: list[Hit], rules: list[str]) -> None:
    assert sorted(violation.rule for violation in check_bucket(BUCKET, steps(begin), notes, hits)) == rules
    assert not list(check_bucket(replace(BUCKET, bucket=False), steps(begin), [], hits))


def test_notes_are_read() -> None:
    lines = [{"what": "stored", "at": 1.0, "version": [1, 2]}, {"what": "read", "at": 2.0, "version": None}]
    assert read_stored(lines) == [Stored(1.0, (1, 2)), Stored(2.0, None, read=True)]
