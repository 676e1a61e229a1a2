import pytest
from elastic_pytorch_operator.model.observed import Nodes, NodeView
from elastic_pytorch_operator.planning.workers.liveness import is_outage


@pytest.mark.parametrize(
    ("ready", "not_ready", "outage"),
    [(0, 0, False), (3, 0, False), (2, 1, False), (1, 2, False), (0, 1, True), (0, 3, True), (2, 3, True), (3, 3, False), (90, 9, False)],
)  # fmt: skip
def test_most_nodes_not_ready_is_an_outage(ready: int, not_ready: int, outage: bool) -> None:
    nodes = Nodes({f"node-{n}": NodeView(f"node-{n}", ready=n < ready) for n in range(ready + not_ready)})
    assert is_outage(nodes) is outage
