import pytest
from elastic_pytorch_local.faults.outcome import changes
from elastic_pytorch_local.faults.steps import Step


def steps(*parts: tuple[float, float, int, int, int]) -> list[Step]:
    """The steps of groups: from when until when, from which number, of which workers."""
    counted = [(part, round((part[1] - part[0]) / 0.05)) for part in parts]
    return [
        Step(b + 0.05 * n, "a", first + n, world, group)
        for (b, _, first, world, group), c in counted
        for n in range(c + 1)
    ]


ONE = (0, 1, 0, 3, 1)


def test_a_group_that_has_gone_tells_of_no_further_change() -> None:
    late = Step(5.02, "b", 22, 3, 1)
    seen = sorted([*steps(ONE, (5, 6, 18, 2, 2), (8, 9, 38, 3, 3)), late], key=lambda step: step.at)
    found = changes(seen, 0.99)
    assert [(each.last.number, each.first.number, each.repeated) for each in found] == [
        (20, 18, 3),
        (38, 38, 1),
    ]
    assert [each.pause_seconds for each in found] == pytest.approx([4.0, 2.0])
    assert changes(seen, 6.5) == found[1:]
