"""The pause of a member, from the steps that it tells of."""

import pytest
from gpu.pauses import Pause, pause_of, steps_after


def steps(*told: tuple[float, int, str, int]) -> list[dict[str, object]]:
    """Steps by time, number, group and size of the group; the process id is that in the group's name."""
    return [{"at": at, "step": step, "group": group, "world": world, "pid": group[0]} for at, step, group, world in told]


OLD = ((1.0, 1, "7-1", 2), (2.0, 2, "7-1", 2), (3.0, 3, "7-1", 2))


@pytest.mark.parametrize(
    ("new", "world", "pause"),
    [
        (((3.5, 4, "7-2", 3),), 3, Pause(0.5, 0, True, 1.0)),
        (((3.5, 3, "7-2", 3),), 3, Pause(0.5, 0, True, 1.0)),  # it had begun step 3, and not ended it
        (((8.0, 1, "8-1", 2),), 2, Pause(5.0, 2, False, 1.0)),
        (((4.0, 4, "7-2", 2), (6.0, 5, "7-3", 3)), 3, Pause(3.0, 0, True, 1.0)),  # a group of another size came between
        (((4.0, 4, "7-2", 2),), 3, None),
        ((), 2, None),
    ],
)
def test_pause(new: tuple[tuple[float, int, str, int], ...], world: int, pause: Pause | None) -> None:
    assert pause_of(steps(*OLD, *new), "7-1", world) == pause


def test_groups_of_the_same_size_that_came_before_do_not_count() -> None:
    told = steps(*OLD, (4.0, 4, "7-2", 3), (5.0, 5, "7-3", 2))
    assert steps_after(told, "7-2", 2) == told[-1:]
    assert steps_after(told, "", 2) == told
