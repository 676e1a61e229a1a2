import pytest
from elastic_pytorch_local.faults import acts, watcher
from elastic_pytorch_local.faults.acts import ActFailed, Acts
from elastic_pytorch_local.faults.cost import repeated_on_purpose
from elastic_pytorch_local.faults.watcher import Watcher, background

from tests.local.faults.counting_cluster import CountingCluster


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(watcher, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(acts, "SETTLE_SECONDS", 0.05)


async def perform(cluster: CountingCluster, *, steps: int = 100_000) -> tuple[Acts, list[str]]:
    """The acts, and what they have said."""
    said: list[str] = []
    watching = Watcher(cluster, "char-lm")
    played = Acts(cluster, watching, said.append)
    container = {"args": ["train.py", "--steps", str(steps)]}
    await cluster.create_job(
        {"spec": {"replicas": 3, "template": {"spec": {"containers": [container]}}}}
    )
    async with background(watching.run()):
        await played.perform()
    return played, said


@pytest.mark.parametrize("log", ["whole", "torn"])
async def test_a_rank_is_killed_a_pod_is_lost_the_job_grows_and_shrinks_each_with_its_cost(
    log: str,
) -> None:
    cluster = CountingCluster(log=log)
    played, said = await perform(cluster)
    verbs = [command.split()[0] for command in cluster.commands[:3]]
    assert [*verbs, *cluster.commands[3:]] == ["apply", "kill", "kill", "scale 4", "scale 3"]
    changes = [(cost.event, cost.before, cost.workers, cost.planned) for cost in played.costs]
    assert changes == [
        ("a rank is killed", 3, 3, False),
        ("a pod is lost", 3, 2, False),
        ("its replacement joins", 2, 3, True),
        ("it grows", 3, 4, True),
        ("it shrinks", 4, 3, True),
    ]
    assert all(cost.still_seconds == 0.02 and cost.repeated is not None for cost in played.costs), (
        "by the status"
    )
    assert repeated_on_purpose(played.costs) == 0
    [joined] = [cost for cost in played.costs if cost.ready_seconds is not None]
    assert joined.event == "its replacement joins"
    assert "it grows, 3 -> 4 workers: training stood still 0.0 s, 0 steps repeated" in said


async def test_where_no_agent_tells_its_processes_none_is_killed() -> None:
    played, said = await perform(CountingCluster(log="silent"))
    assert len(played.costs) == 4
    assert "no rank is killed: no agent has told the id of its process" in said


@pytest.mark.parametrize(
    ("cluster", "steps", "why"),
    [
        (CountingCluster(fail_at=10), 100_000, "ValueError: boom"),
        (CountingCluster(stuck_after=1), 100_000, "for the training to go on"),
        (CountingCluster(), 20, "give it more steps"),
    ],
    ids=["fails", "stuck", "short"],
)
async def test_job_that_does_less_than_it_should_ends_the_acts_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, cluster: CountingCluster, steps: int, why: str
) -> None:
    monkeypatch.setattr(acts, "HANG_SECONDS", 0.5)
    with pytest.raises(ActFailed, match=why):
        await perform(cluster, steps=steps)
