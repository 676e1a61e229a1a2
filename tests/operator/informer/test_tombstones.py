"""What was deleted, and what may still bring it back.

`test_cache.py` has lists and watches that try.
"""

from elastic_pytorch_operator.informer.tombstones import TOMBSTONE_SECONDS, Tombstones

from tests.situations import situations


@situations(
    "now, listed, admitted",
    {
        "late event": (20.0, False, False),
        "list that began before": (9.0, True, False),
        "list that began then": (10.0, True, False),
        "list that began later": (11.0, True, True),
    },
)
def test_only_a_later_list_brings_back_what_was_deleted(
    now: float, listed: bool, admitted: bool
) -> None:
    tombstones = Tombstones()
    tombstones.leave("u", 10.0)
    assert tombstones.admit("u", now, listed=listed) is admitted
    assert tombstones.admit("u", 21.0, listed=False) is admitted, "then it is there"
    assert tombstones.admit("another", now, listed=listed)


def test_tombstones_go_after_a_while_and_are_bounded() -> None:
    tombstones = Tombstones(most=3)
    for number in range(9):
        tombstones.leave(f"{number}", float(number))
    assert [
        number for number in range(9) if not tombstones.admit(f"{number}", 9.0, listed=False)
    ] == [6, 7, 8]
    tombstones.expire(8.0 + TOMBSTONE_SECONDS)
    assert len(tombstones._deleted_at) == 1
    tombstones.expire(8.5 + TOMBSTONE_SECONDS)
    assert len(tombstones._deleted_at) == 0


def test_object_without_a_uid_leaves_none() -> None:
    tombstones = Tombstones()
    tombstones.leave("", 10.0)
    assert tombstones.admit("", 11.0, listed=False)
