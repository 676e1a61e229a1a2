"""Whose memory a group goes on from, by what each rank has told."""

from elastic_pytorch.state.source import NO_POD, MemoryReport, Source, choose_memory
from elastic_pytorch.state_format.state_version import StateVersion

from tests.situations import situations

NOTHING, V4, V5 = StateVersion(0, 0), StateVersion(1, 4), StateVersion(1, 5)
OLDER_GROUP, NEWER_GROUP = StateVersion(1, 99), StateVersion(2, 90)


def told(
    version: StateVersion,
    *,
    pod: int = NO_POD,
    keeps: bool = True,
    layout: int = 1,
    writer: int = 0,
) -> MemoryReport:
    return MemoryReport(*version, layout, writer, pod, keeps)


@situations(
    "ranks,source",
    {
        "nothing": ([told(NOTHING)], None),
        "one": ([told(V5)], Source(V5, 0, ())),
        "two alike": ([told(V5), told(V5)], Source(V5, 0, ())),
        "one has none": ([told(V5), told(NOTHING)], Source(V5, 0, (1,))),
        "one is older": ([told(V4), told(V5), told(V5)], Source(V5, 1, (0,))),
        "of a newer group": ([told(OLDER_GROUP), told(NEWER_GROUP)], Source(NEWER_GROUP, 1, (0,))),
        "lowest writer": ([told(V5, writer=2), told(V5, writer=1)], Source(V5, 1, ())),
        "another layout": ([told(V5), told(V5, layout=2)], Source(V5, 0, (1,))),
        "one of each pod that lacks it": (
            [
                told(V5, pod=0),
                told(NOTHING, pod=0, keeps=False),
                told(NOTHING, pod=1),
                told(NOTHING, pod=1, keeps=False),
                told(NOTHING, keeps=False),
            ],
            Source(V5, 0, (2, 4)),
        ),
    },
)
def test_newest_memory(ranks: list[MemoryReport], source: Source | None) -> None:
    assert choose_memory(ranks) == source
