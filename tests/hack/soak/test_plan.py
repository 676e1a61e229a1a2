"""Plans are drawn from a seed, and survive being written down."""

import json

import pytest
from soak.__main__ import parse_options
from soak.inject import how
from soak.plan import KINDS, SETTLED, draw, from_json, to_json


def test_the_same_seed_draws_the_same_plan() -> None:
    assert draw(7, 600) == draw(7, 600)
    assert draw(7, 600) != draw(8, 600)


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_comes_before_one_comes_twice_and_pairs_are_of_two_families(seed: int) -> None:
    acts = draw(seed, 1800)
    drawn = [fault.kind for act in acts for fault in act.faults]
    first = drawn[: len(KINDS) - 1]  # the last of a round may be left over for the next act, if its family is that of the first
    assert len(set(first)) == len(first)
    assert set(drawn) == set(KINDS)
    for act in acts:
        families = [KINDS[fault.kind].family for fault in act.faults]
        assert len(set(families)) == len(families) in (1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_faults_last_as_long_as_their_kind_says(seed: int) -> None:
    for act in draw(seed, 1800, longest_seconds=25):
        for fault in act.faults:
            least, most = KINDS[fault.kind].seconds
            assert least <= fault.seconds <= min(most, 25)


@pytest.mark.parametrize("seconds", [60, 600, 3600])
def test_acts_take_about_the_time_that_there_is(seconds: float) -> None:
    acts = draw(3, seconds)
    taken = sum(act.pause_seconds + max(fault.seconds for fault in act.faults) for act in acts)
    assert seconds / 2 < taken < seconds + 120


def test_only_the_kinds_that_are_asked_for_are_drawn() -> None:
    acts = draw(1, 300, ["drain", "cordon"])
    assert {fault.kind for act in acts for fault in act.faults} == {"drain", "cordon"}
    assert all(len(act.faults) == 1 for act in acts), "both are of one family"


def test_settled_kinds_are_those_by_which_no_operator_ends() -> None:
    assert {KINDS[kind].family for kind in SETTLED} == {"worker", "size", "node", "control plane", "storage", "image"}
    assert set(KINDS) - set(SETTLED) >= {"kill-leader", "kill-operators", "roll-operator", "kill-node", "freeze-api"}


def test_plans_without_the_bucket_are_those_of_before() -> None:
    assert parse_options(["--seed", "7", "--minutes", "3"]).acts == draw(7, 180, list(KINDS)[:20])
    drawn = parse_options(["--seed", "7", "--minutes", "30", "--jobs", "bucket,library"]).acts
    assert {fault.kind for act in drawn for fault in act.faults} == set(KINDS)
    with pytest.raises(SystemExit):
        parse_options(["--faults", "pause-server"])


def test_a_plan_that_was_kept_is_the_same() -> None:
    acts = draw(7, 600)
    assert from_json(json.loads(json.dumps(to_json(acts)))) == acts


def test_each_kind_can_be_made() -> None:
    assert all(how(kind) for kind in KINDS)
