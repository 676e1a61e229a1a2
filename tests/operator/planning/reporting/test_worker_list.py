import json
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.times import earlier
from elastic_pytorch_operator.model.known_workers import known_workers
from elastic_pytorch_operator.model.observed import AgentView, Observed, PodView
from elastic_pytorch_operator.model.operator_state import OperatorState
from elastic_pytorch_operator.planning.reporting.worker_list import MAX_LISTED, describe_workers
from elastic_pytorch_operator.planning.workers.liveness import assess_workers

from tests.operator.builders import (
    NOW,
    TIME,
    a_dead_pod,
    a_job,
    a_pending_pod,
    a_pod,
    a_round,
    an_agent,
    observed,
)

MANY = 300
FIRST, LAST = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def described(
    changed: dict[int, PodView] | None = None, extra: list[PodView] | None = None, **fields: Any
) -> dict[str, Any]:
    """The fields of a job of many workers that train, some of whose pods are as given."""
    pods = [
        (changed or {}).get(i, a_pod(i, creation_time=FIRST))
        for i in range(fields.pop("count", MANY))
    ]
    agents = [
        an_agent(pod.name) for pod in pods if pod.started and pod.name not in fields.pop("mute", ())
    ]
    members = fields.pop("members", None) or [pod.index for pod in pods]
    seen = observed([*pods, *(extra or [])], agents, round=a_round(*members), last_heard_at=NOW)
    job = a_job(replicas=MANY, maximum=MANY, **fields)
    workers, newest_pod_time = describe_workers(
        assess_workers(seen), job, seen, seen.round, job.wanted, ()
    )
    return workers | OperatorState(newest_pod_time=newest_pod_time).as_status()


def workers_of(seen: Observed, **job: Any) -> list[dict[str, Any]]:
    described = a_job(**job)
    found, _ = describe_workers(
        assess_workers(seen), described, seen, seen.round, described.wanted, ()
    )
    return list(found["workers"])


def listed(found: dict[str, Any]) -> list[int]:
    return [worker["index"] for worker in found["workers"]]


def test_small_job_lists_all_its_workers_and_nothing_else() -> None:
    found = described(count=MAX_LISTED)
    assert set(found) == {"workers"}
    assert listed(found) == list(range(MAX_LISTED))


def test_large_job_that_is_well_lists_the_first_workers() -> None:
    found = described()
    assert listed(found) == list(range(MAX_LISTED))
    assert found["unlistedWorkers"] == {"Running": f"{MAX_LISTED}-{MANY - 1}"}
    assert found["operatorState"] == {"newestPodTime": FIRST}


def test_workers_that_do_not_train_are_listed_first_and_all_in_the_order_of_their_indexes() -> None:
    starting = a_pending_pod(250, creation_time=LAST)
    leaving = a_pod(299, deleting=True, creation_time=FIRST)
    found = described({250: starting, 299: leaving, 5: a_dead_pod(5, creation_time=FIRST)})
    assert listed(found) == [*range(MAX_LISTED - 2), 250, 299]
    states = {worker["index"]: worker["state"] for worker in found["workers"]}
    assert (states[5], states[250], states[299]) == ("Lost", "Starting", "Leaving")
    assert found["unlistedWorkers"] == {"Running": "126-249,251-298"}


def test_ended_pods_with_a_successor_give_way_to_it_and_are_no_index() -> None:
    dead = [a_dead_pod(i, name=f"old{i}", creation_time=FIRST) for i in range(100)]
    found = described(extra=dead, count=100)
    assert sum(not worker["name"].startswith("old") for worker in found["workers"]) == 100
    assert len(found["workers"]) == MAX_LISTED
    assert "unlistedWorkers" not in found, "no current worker is missing in the list"
    assert described(extra=dead)["unlistedWorkers"] == {"Running": "128-299"}


def test_pod_whose_index_no_worker_has_hides_none_of_the_others() -> None:
    found = described(
        {
            i: a_pending_pod(99_999 if i == 299 else i, name=f"w{i}", creation_time=LAST)
            for i in range(100, 300)
        }
    )
    assert found["unlistedWorkers"] == {"Running": "0-99", "Starting": "228-298"}


def test_more_workers_that_do_not_train_than_the_list_holds_are_indexes_by_state() -> None:
    found = described({i: a_pending_pod(i, creation_time=LAST) for i in range(100, 300)})
    assert listed(found) == list(range(100, 228))
    assert found["unlistedWorkers"] == {"Running": "0-99", "Starting": "228-299"}
    assert found["operatorState"] == {"newestPodTime": FIRST}


def test_time_is_that_of_pods_whose_agents_have_reported() -> None:
    found = described({i: a_pending_pod(i, creation_time=LAST) for i in range(300)})
    assert "operatorState" not in found
    found = described({200: a_pod(200, creation_time=LAST)})
    assert found["operatorState"] == {"newestPodTime": LAST}


@pytest.mark.parametrize(
    "changed",
    [{}, {7: a_dead_pod(7, creation_time=FIRST)}, {i: a_pending_pod(i) for i in range(50, 290)}],
)
def test_new_leader_reads_what_was_written(changed: dict[int, PodView]) -> None:
    pods = [changed.get(i, a_pod(i, creation_time=FIRST)) for i in range(MANY)]
    read = known_workers(described(changed), pods)
    assert sorted(worker.pod for worker in read if worker.heard) == sorted(
        f"w{i}" for i in range(MANY) if i not in changed
    )
    assert {worker.index for worker in read} == set(range(MANY))


def test_longest_list_is_bounded() -> None:
    """With the longest names and nodes, and every other worker in another state."""

    def long(pod: PodView) -> PodView:
        return replace(pod, name=f"{pod.index:04d}" + "x" * 59, node="n" * 253, creation_time=LAST)

    pods = [long(a_pod(i) if i % 2 else a_pending_pod(i)) for i in range(4096)]
    agents: list[AgentView] = [an_agent(pod.name) for pod in pods if pod.started]
    seen = observed(pods, agents, last_heard_at=NOW)
    found, _ = describe_workers(assess_workers(seen), a_job(), seen, None, 3, ())
    assert len(found["workers"]) == MAX_LISTED
    assert len(json.dumps(found).encode()) < 72 * 1024


def test_worker_whose_script_sets_itself_up_is_preparing() -> None:
    seen = observed(
        [a_pod(0), a_pod(1)], [an_agent("w0"), an_agent("w1", "preparing", 0)], round=a_round(0)
    )
    assert [worker["state"] for worker in workers_of(seen)] == ["Running", "Preparing"]


def test_worker_whose_last_checkpoint_is_being_written_is_saving() -> None:
    agents = [an_agent("w0", saving_since=NOW - 90), an_agent("w1", "succeeded")]
    seen = observed([a_pod(0), a_pod(1)], agents, round=a_round(0, 1))
    assert [(worker["state"], worker.get("stateSince")) for worker in workers_of(seen)] == [
        ("Saving", earlier(TIME, 90.0)),
        ("Succeeded", None),
    ]


def test_since_when_a_worker_prepares_outlives_the_operator_that_has_seen_it_begin() -> None:
    agents = [
        an_agent("w0", "preparing", 0, set_up_since=NOW - 90),
        an_agent("w1", "preparing", 0, set_up_since=NOW),
    ]
    seen = observed([a_pod(0), a_pod(1)], agents)
    old = {"name": "w1", "index": 1, "state": "Preparing", "stateSince": FIRST}
    found = workers_of(seen, status={"workers": [old]})
    assert [worker["stateSince"] for worker in found] == [earlier(TIME, 90.0), FIRST]
    ready = an_agent("w0", "ready", 0, set_up_since=NOW - 90, set_up_until=NOW)
    assert "stateSince" not in workers_of(observed([a_pod(0)], [ready]))[0]


def test_worker_that_saves_has_not_done_so_since_it_prepared() -> None:
    old = {"name": "w0", "index": 0, "state": "Preparing", "stateSince": FIRST}
    seen = observed([a_pod(0)], [an_agent("w0", saving_since=NOW - 90)], round=a_round(0))
    [found] = workers_of(seen, status={"workers": [old]})
    assert found["stateSince"] == earlier(TIME, 90.0)
