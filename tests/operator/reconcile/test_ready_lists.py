"""In which order keys are taken."""

import pytest
from elastic_pytorch_operator.reconcile.ready_lists import URGENT_IN_A_ROW, ReadyLists


@pytest.mark.parametrize(
    ("added", "taken"),
    [
        pytest.param("abc", "abc", id="first come, first served"),
        pytest.param("abA", "Ab", id="one that becomes urgent goes before the others, once"),
        pytest.param("aBcD", "BDac", id="urgent ones go first"),
        pytest.param("Aab", "Ab", id="one that is urgent stays so"),
        pytest.param("aab", "ab", id="a key is there once"),
        pytest.param("abABCDEFGHIJKLM", "ABCDEFGHIJKLM", id="nothing but urgent ones"),
        pytest.param("zyABCDEFGHIJKLMNOPQ", "ABCDEFGHzIJKLMNOPyQ", id="the others get their turn"),
    ],
)
def test_order(added: str, taken: str) -> None:
    lists: ReadyLists[str] = ReadyLists()
    for key in added:
        lists.add(key.lower(), urgent=key.isupper())
    assert len(lists) == len(taken)
    assert [lists.pop() for _ in range(len(taken))] == list(taken.lower())
    assert len(lists) == 0


def test_key_can_be_removed() -> None:
    lists: ReadyLists[str] = ReadyLists()
    lists.add("a", urgent=True)
    lists.add("b", urgent=False)
    for key in ("a", "b", "c"):
        lists.discard(key)
        assert key not in lists
    with pytest.raises(KeyError):
        lists.pop()


def test_those_that_are_not_urgent_wait_for_a_bounded_time() -> None:
    lists: ReadyLists[int] = ReadyLists()
    lists.add(-1, urgent=False)
    for key in range(100):
        lists.add(key, urgent=True)
    assert [lists.pop() for _ in range(URGENT_IN_A_ROW + 1)][-1] == -1
