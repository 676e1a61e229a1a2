import pytest
from elastic_pytorch_client.reading.nodes import NodeView, parse_quantity, shortage_of_room


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [
        *(("2", 2), ("500m", 0.5), ("1Gi", 2**30), ("1.5k", 1500), ("1e3", 1000), ("many", 0)),
        *(("", 0), ("1Ei", 2**60), ("2E", 2e18), ("100u", pytest.approx(1e-4))),
    ],
)
def test_quantities(quantity: str, amount: float) -> None:
    assert parse_quantity(quantity) == amount


def node(name: str, *, cpu: str = "4", ready: bool = True, cordoned: bool = False) -> NodeView:
    return NodeView(name, ready, cordoned, {"cpu": cpu, "memory": "8Gi", "nvidia.com/gpu": "0"})


@pytest.mark.parametrize(
    ("requests", "nodes", "words"),
    [
        ({"cpu": 1.0}, [node("a")], None),
        (
            {"cpu": 5.0},
            [node("a"), node("b", cpu="2")],
            "It asks for 5 CPU; the largest node in use has 4 CPU.",
        ),
        (
            {"memory": 2.0**34},
            [node("a")],
            "It asks for 16 GiB of memory; the largest node in use has 8 GiB of memory.",
        ),
        (
            {"nvidia.com/gpu": 1.0},
            [node("a")],
            "It asks for 1 GPUs; the largest node in use has 0 GPUs.",
        ),
        ({"cpu": 1.0}, [node("a"), node("b", cordoned=True)], "Of 2 nodes, b is cordoned."),
        (
            {"cpu": 1.0},
            [node("a", ready=False), node("b", ready=False)],
            "Of 2 nodes, a and 1 more are not ready.",
        ),
        ({}, [], None),
    ],
)
def test_room_on_nodes(
    requests: dict[str, float], nodes: list[NodeView], words: str | None
) -> None:
    shortage = shortage_of_room(requests, nodes)
    assert (shortage.what if shortage else None) == words
