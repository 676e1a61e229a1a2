"""`test_cache.py` has nodes that are removed, and says which jobs a change concerns."""

from typing import Any

from elastic_pytorch_operator.informer.node_index import NodeIndex


def node(name: str, *, ready: str = "True", uid: str = "", version: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def test_only_a_change_of_the_view_is_news() -> None:
    index = NodeIndex()
    assert index.take(node("a"), 1.0)
    before = index.all
    assert not index.take(node("a", version=2), 2.0)
    assert index.all is before
    assert index.take(node("a", version=3, ready="False"), 3.0)
    assert not index.take(node("a", version=2), 4.0), "it is older"
    assert not index.all["a"].ready


def test_list_removes_those_that_it_does_not_have_unless_they_came_later() -> None:
    index = NodeIndex()
    index.take(node("a"), 1.0)
    index.take(node("b"), 1.0)
    index.take(node("c"), 6.0)
    assert index.remove_others({"a"}, 5.0) == ["b"]
    assert {name: view.removed for name, view in index.all.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }
    assert index.remove_others({"a"}, 5.0) == [], "once"
