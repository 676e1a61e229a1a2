import pytest
from elastic_pytorch_operator.model.observed import SILENT, Place, PlaceKind
from elastic_pytorch_operator.planning.failures.hang_culprit import Culprits, find_culprits

REDUCE = Place(PlaceKind.COLLECTIVE, "all_reduce", "train.py:60 step")
BARRIER = Place(PlaceKind.COLLECTIVE, "barrier", "train.py:70 save")
BACKWARD = Place(PlaceKind.COLLECTIVE, "backward", "train.py:58 step")
SEND, RECEIVE = Place(PlaceKind.COLLECTIVE, "send"), Place(PlaceKind.COLLECTIVE, "recv")
LOADS = Place(PlaceKind.DATA_LOADER, frame="train.py:41 load")
READS = Place(PlaceKind.FILE, frame="train.py:12 read")
ITEM = Place(PlaceKind.OTHER, frame="train.py:62 step")
LOADING = "is in its data loader (train.py:41 load)"
OUTSIDE = "is outside of the group's communication (train.py:62 step)"
ENDED, STOPPED = Place(PlaceKind.ENDED), Place(PlaceKind.STOPPED)


@pytest.mark.parametrize(
    ("places", "ranks", "text"),
    [
        ((REDUCE, REDUCE, REDUCE), (), "all ranks wait in all_reduce: none stands out"),
        ((SEND, RECEIVE, SEND), (), "all ranks wait in send or recv: none stands out"),
        ((REDUCE, REDUCE, LOADS), (2,), f"rank 2 {LOADING}, the others wait in all_reduce"),
        ((LOADS, BACKWARD), (0,), f"rank 0 {LOADING}, the other waits in backward"),
        (
            (REDUCE, LOADS, REDUCE, READS),
            (1, 3),
            f"rank 1 {LOADING}, "
            "rank 3 reads or writes a file (train.py:12 read), "
            "the others wait in all_reduce",
        ),
        (
            (REDUCE, BARRIER, LOADS),
            (2,),
            f"rank 2 {LOADING}, the others wait in all_reduce or barrier",
        ),
        (
            (REDUCE, REDUCE, BARRIER),
            (2,),
            "rank 2 waits in barrier (train.py:70 save), the others wait in all_reduce",
        ),
        (
            (REDUCE, BARRIER),
            (),
            "the ranks wait for each other in different collectives: "
            "rank 0 waits in all_reduce (train.py:60 step), "
            "rank 1 waits in barrier (train.py:70 save)",
        ),
        (
            (REDUCE, REDUCE, SILENT),
            (2,),
            "rank 2 has not said where it is, the others wait in all_reduce",
        ),
        (
            (REDUCE, REDUCE, STOPPED),
            (2,),
            "rank 2 is stopped by a signal, the others wait in all_reduce",
        ),
        ((REDUCE, SILENT, LOADS), (2,), f"rank 2 {LOADING}, the other waits in all_reduce"),
        ((REDUCE, REDUCE, ENDED), (2,), "rank 2 has exited with 0, the others wait in all_reduce"),
        (
            (REDUCE, LOADS, LOADS),
            (),
            "most ranks are outside of the group's communication: "
            f"rank 1 {LOADING}, "
            f"rank 2 {LOADING}",
        ),
        ((ITEM, ITEM, LOADS), (2,), f"rank 2 {LOADING}, the others are at train.py:62 step"),
        (
            (ITEM, ITEM, ITEM),
            (),
            "all ranks are at the same place: each is outside of the group's communication "
            "(train.py:62 step)",
        ),
        ((ITEM, ITEM, ENDED), (2,), "rank 2 has exited with 0, the others are at train.py:62 step"),
        (
            (LOADS, LOADS, ITEM),
            (),
            f"no rank is in a collective: rank 0 {LOADING}, rank 1 {LOADING}, rank 2 {OUTSIDE}",
        ),
        (
            (ITEM, LOADS),
            (),
            "no rank is in a collective: rank 0 is outside of the group's communication "
            "(train.py:62 step), "
            f"rank 1 {LOADING}",
        ),
        ((SILENT, SILENT), (), ""),
        ((), (), ""),
    ],
)
def test_culprits(places: tuple[Place, ...], ranks: tuple[int, ...], text: str) -> None:
    assert find_culprits(dict(enumerate(places))) == Culprits(ranks, text)


def test_few_ranks_are_described() -> None:
    found = find_culprits({rank: LOADS if rank < 9 else REDUCE for rank in range(20)})
    assert found.ranks == tuple(range(9))
    assert found.text.count("is in its data loader") == 4
    assert ", 5 more, the others wait in all_reduce" in found.text
