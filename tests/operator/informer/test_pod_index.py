from functools import partial

import pytest
from elastic_pytorch_operator.informer.owned_objects import Entry, Owner
from elastic_pytorch_operator.informer.pod_index import PodIndex
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.spec.job import JobKey
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import a_pod
from tests.operator.counted_lines import count_lines


def owner(name: str) -> Owner:
    return JobKey("default", name), f"uid-{name}"


def entry(index: int, job: str = "lm", **fields: str) -> Entry[PodView]:
    return Entry(a_pod(index, name=f"{job}-{index}", **fields), owner(job), 1, 1.0)


def put(index: PodIndex, *entries: Entry[PodView]) -> PodIndex:
    for found in entries:
        index["default", found.view.name] = found
    return index


def test_tuple_stays_the_same_until_a_pod_of_the_job_changes() -> None:
    index = put(PodIndex(), entry(0), entry(1), entry(0, "other"))
    before = index.workers_of(owner("lm"))
    put(index, entry(0, "other", node="node-2"))
    assert index.workers_of(owner("lm")) is before
    put(index, entry(1, node="node-2"))
    assert [pod.node for pod in index.workers_of(owner("lm"))] == ["node-0", "node-2"]
    index.mark_ended_before_takeover()
    del index["default", "lm-0"]
    assert [pod.index for pod in index.workers_of(owner("lm"))] == [1]


@pytest.mark.parametrize("question", ["workers_of", "owners_on", "owners_at"])
def test_answer_costs_nothing_for_the_pods_of_others(question: str) -> None:
    def cost(others: int) -> int:
        index = put(PodIndex(), entry(0, node="here", address="10.1.0.0"))
        put(index, *(entry(n, f"job-{n}", node=f"node-{n}") for n in range(others)))
        asked = {"workers_of": owner("lm"), "owners_on": "here", "owners_at": "10.1.0.0"}[question]
        return count_lines(partial(getattr(index, question), asked))

    assert cost(500) == cost(5)


PODS = st.tuples(st.integers(0, 5), st.sampled_from(["", "n1", "n2"]), st.sampled_from(["a", "b"]))


@given(changes=st.lists(st.tuples(st.booleans(), PODS), max_size=30))
def test_answers_are_those_of_a_scan(changes: list[tuple[bool, tuple[int, str, str]]]) -> None:
    index, known = PodIndex(), {}
    for gone, (number, node, job) in changes:
        place = ("default", f"p{number}")
        if gone:
            if known.pop(place, None):
                del index[place]
        else:
            known[place] = Entry(
                a_pod(number, name=f"p{number}", node=node, address=node), owner(job), 1, 1.0
            )
            index[place] = known[place]
        for job_ in ("a", "b"):
            mine = [found.view for found in known.values() if found.owner == owner(job_)]
            assert list(index.workers_of(owner(job_))) == sorted(mine, key=lambda pod: pod.index)
        for node_ in ("n1", "n2"):
            there = {found.owner for found in known.values() if found.view.node == node_}
            assert index.owners_on(node_) == index.owners_at(node_) == there
        assert set(index.nodes) == {found.view.node for found in known.values()} - {""}
