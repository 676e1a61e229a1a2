"""The round that a new leader finds."""

from elastic_pytorch_operator.reconcile.observe import recover_round

from tests.operator.builders import NOW, a_pod, an_agent

PODS = [a_pod(i) for i in range(3)]


def test_members_are_those_that_report_the_newest_round() -> None:
    agents = {f"w{i}": an_agent(f"w{i}", round_=7 - (i == 2), rank=i, newest=7) for i in range(3)}
    found = recover_round(PODS, agents, NOW)
    assert found is not None
    assert (found.number, found.workers, found.size) == (7, ("w0", "w1"), 3)


def test_round_that_none_has_taken_up_is_empty() -> None:
    agents = {f"w{i}": an_agent(f"w{i}", "ready", round_=7, rank=i, newest=8) for i in range(3)}
    found = recover_round(PODS, agents, NOW)
    assert found is not None
    assert (found.number, found.size) == (8, 0)


def test_agents_that_know_of_no_round_make_none() -> None:
    agents = {"w0": an_agent("w0", "ready", round_=0, world_size=0)}
    assert recover_round(PODS, agents, NOW) is None
