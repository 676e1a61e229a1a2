"""The stores of rendezvous that are over go."""

import pytest
from elastic_pytorch_operator.model.actions import DeletePod
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.stock.stores import delete_stores

from tests.operator.builders import a_pod, observed

STORES = (
    a_pod(0, name="s1", rendezvous=1),
    a_pod(0, name="s2", rendezvous=2),
    a_pod(0, name="s3", rendezvous=3, deleting=True),
)


@pytest.mark.parametrize(("keep", "gone"), [(0, ["s1", "s2"]), (2, ["s1"]), (3, ["s1", "s2"])])
def test_all_others_are_deleted_once(keep: int, gone: list[str]) -> None:
    deleted = delete_stores(observed(stores=STORES), keep=keep, why="it is over")
    assert deleted == [DeletePod(name, f"uid-{name}", "it is over") for name in gone]


def test_no_kubelet_is_waited_for_on_a_node_that_has_been_removed() -> None:
    nodes = {"node-0": NodeView("node-0", ready=False, removed=True)}
    assert [pod.force for pod in delete_stores(observed(stores=STORES, nodes=nodes), keep=2, why="")] == [True]
