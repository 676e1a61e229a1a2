"""Who checks its node together with whom."""

import pytest
from elastic_pytorch_operator.planning.preflight.pairs import pair_again, pair_up


@pytest.mark.parametrize(
    ("workers", "pairs"),
    [
        ("", []),
        ("a", ["a"]),
        ("ab", ["ab"]),
        ("abc", ["abc"]),
        ("abcd", ["ab", "cd"]),
        ("abcde", ["ab", "cde"]),
    ],
)
def test_neighbours_are_paired_and_nobody_of_several_is_alone(workers: str, pairs: list[str]) -> None:
    assert pair_up(workers) == tuple(tuple(pair) for pair in pairs)


@pytest.mark.parametrize(
    ("suspects", "passed", "tried", "pairs"),
    [
        ("ac", "bd", ["ab", "cd"], ["da", "bc"]),  # each with another partner that has passed
        ("a", "bc", ["ab"], ["ca"]),
        ("a", "b", ["ab"], ["ba"]),  # it has passed since
        ("bcd", "a", ["abcd"], ["ab", "cd"]),
        ("abcd", "", ["ab", "cd"], ["ac", "bd"]),
        ("abc", "", ["abc"], ["ab"]),  # the third waits for one of them
        ("abc", "", ["abc", "ab"], ["ac"]),
        ("ab", "", ["ab"], ["a", "b"]),
        ("a", "", ["a"], ["a"]),
    ],
)
def test_who_is_checked_again_with_whom(suspects: str, passed: str, tried: list[str], pairs: list[str]) -> None:
    found = pair_again(suspects, passed, {frozenset(group) for group in tried})
    assert found == tuple(tuple(pair) for pair in pairs)
