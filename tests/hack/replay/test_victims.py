"""Events are made to a worker that trains and has its node for itself, as long as there is one."""

from typing import Any

import pytest
from replay.victims import choose, on_node


def a_pod(name: str, node: str, phase: str = "Running", *, leaving: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name} | ({"deletionTimestamp": "now"} if leaving else {})
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("nodes", "trained", "victims"),
    [
        ({"a": "n1", "b": "n2", "c": "n3"}, "abc", ["a", "b", "c"]),
        ({"a": "n1", "b": "n1", "c": "n3"}, "abc", ["c"]),
        ({"a": "n1", "b": "n1", "c": "n1"}, "abc", ["a", "b", "c"]),
        ({"a": "n1", "b": "n2", "spare": "n2"}, "ab", ["a", "b"]),
        ({"a": "n1", "b": "n2"}, "", ["a", "b"]),
        ({}, "", []),
    ],
)
def test_victims_train_and_are_alone(nodes: dict[str, str], trained: str, victims: list[str]) -> None:
    pods = [a_pod(name, node) for name, node in nodes.items()]
    found = {str(pod["metadata"]["name"]) for pick in range(12) if (pod := choose(pods, set(trained), pick))}
    assert sorted(found) == victims


def test_pods_that_end_are_no_victims() -> None:
    pods = [a_pod("a", "n1", "Failed"), a_pod("b", "n2", leaving=True), a_pod("c", "n3", "Pending")]
    assert choose(pods, set("abc"), 0) is None
    assert [pod["metadata"]["name"] for pod in on_node(pods, "n2")] == ["b"]
    assert on_node(pods, "n1") == []
