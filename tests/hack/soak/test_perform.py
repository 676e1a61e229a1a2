from collections.abc import Awaitable, Callable
from dataclasses import asdict

import pytest
from elastic_pytorch_local.faults.driver import DriverError
from measure import engine
from measure.engine import NotUndone, Target, made
from soak.perform import Hit, perform, pick
from soak.plan import Act, Fault, Kind, draw, from_json

KINDS = [
    Kind("kill", "worker", "killed"),
    Kind("drain", "node", "drained", (5, 30)),
    Kind("cordon", "node", "cordoned", (5, 30)),
]


def test_plan_of_a_seed_has_each_kind_and_is_made_again_from_a_report() -> None:
    drawn = draw(7, 600, KINDS, longest_seconds=20)
    assert (
        drawn == draw(7, 600, KINDS, longest_seconds=20) != draw(8, 600, KINDS, longest_seconds=20)
    )
    assert {fault.kind for act in drawn for fault in act.faults} == {"kill", "drain", "cordon"}
    assert max(fault.seconds for act in drawn for fault in act.faults) <= 20
    assert from_json([asdict(act) for act in drawn]) == drawn


def doing(done: list[str], what: str, failures: int = 0) -> Callable[[], Awaitable[None]]:
    """Takes note that something is done, which fails the first times."""

    async def do() -> None:
        done.append(what)
        if done.count(what) <= failures:
            raise DriverError("not yet")

    return do


async def test_faults_of_an_act_are_made_and_undone_and_what_was_made_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "UNDO_PAUSE_SECONDS", 0.01)
    done, told, hits = list[str](), list[str](), list[Hit]()
    targets = {
        "drain": Target(
            "drain n1",
            doing(done, "drain"),
            doing(done, "uncordon", failures=2),
            frozenset({"a"}),
            node="n1",
        ),
        "cordon": Target(
            "cordon n2", doing(done, "cordon", failures=1), doing(done, "uncordon n2")
        ),
    }

    async def choose(fault: Fault) -> Target:
        return targets[pick(0, [fault.kind] if fault.kind in targets else [], "worker")]

    kinds = {kind.name: kind for kind in KINDS}
    act = Act(0.0, tuple(Fault(name, 0, 0.0) for name in kinds))
    await perform(act, choose, hits, told.append, lambda node: frozenset({f"on {node}"}))
    assert done.count("uncordon") == 3, "again until it is undone"
    assert done.count("uncordon n2") == 1, "although it was not made for certain"
    assert {(hit.kind.name, hit.what) for hit in hits} == {
        ("drain", "drain n1"),
        ("cordon", "cordon n2 (perhaps not: DriverError not yet)"),
    }
    [drained] = [hit for hit in hits if hit.node]
    assert (drained.jobs, drained.touches("a"), drained.touches("b")) == (
        {"a", "on n1"},
        True,
        False,
    )
    assert "kill not made: there is no worker" in told


async def test_fault_that_cannot_be_undone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "UNDO_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(engine, "UNDO_SECONDS", 0.03)
    with pytest.raises(NotUndone, match="drain n1"):
        async with made(
            Target("drain n1", doing([], "drain"), doing([], "undo", failures=10**6)),
            lambda _: None,
        ):
            pass
    with pytest.raises(DriverError, match="there is no node"):
        pick(3, [], "node")
