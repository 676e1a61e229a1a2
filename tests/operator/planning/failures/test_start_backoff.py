import pytest
from elastic_pytorch_operator.model.observed import Observed, PodView
from elastic_pytorch_operator.planning.failures.start_backoff import (
    find_failed_starts,
    why_given_up,
)

from tests.operator.builders import NOW, a_dead_pod, a_pod, an_agent, observed
from tests.situations import situations


def failed(index: int = 0, **fields: object) -> PodView:
    defaults = {"exit_code": None, "exit_reason": "UnexpectedAdmissionError", "ended_at": NOW}
    return a_dead_pod(index, **{**defaults, **fields})  # type: ignore[arg-type]


def spoken(**fields: object) -> Observed:
    """A pod whose agent has reported ends within half a minute."""
    defaults = {"exit_code": 137, "exit_reason": "Error", "created_at": NOW - 30, "ended_at": NOW}
    return observed([a_dead_pod(0, **{**defaults, **fields})], [an_agent("w0", "failed")])  # type: ignore[arg-type]


START_ERROR = {"exit_code": 128, "exit_reason": "StartError"}


@situations(
    "seen, nodes",
    {
        "rejected by its kubelet": (observed([failed()]), "node-0"),
        "its container could not be started": (observed([failed(**START_ERROR)]), "node-0"),
        "ended before its agent spoke": (
            observed([failed(exit_code=1, exit_reason="Error")]),
            "node-0",
        ),
        "not the first in a row": (
            observed([failed(failed_starts=("node-2", "node-1"))]),
            "node-2 node-1 node-0",
        ),
        "its agent has spoken": (observed([failed(exit_code=1)], [an_agent("w0", "failed")]), None),
        "its set-up has failed": (
            observed([failed(exit_code=1)], [an_agent("w0", "failed", 0)]),
            "node-0",
        ),
        "it was killed in its set-up": (
            observed([failed(exit_code=137)], [an_agent("w0", "preparing", 0)]),
            "node-0",
        ),
        "its torchrun has given up": (
            observed([failed(exit_code=1)], [an_agent("w0", "failed", 0, gives_up=True)]),
            None,
        ),
        "an earlier leader has heard it": (
            observed([failed(exit_code=1)], heard_before=frozenset({"w0"})),
            None,
        ),
        "ended by its own disk, soon": (spoken(exit_reason="Evicted"), "-"),
        "killed, soon": (spoken(), None),
        "ended by its own disk, for the third time": (
            spoken(exit_reason="Evicted", failed_starts=("-", "-")),
            "- - -",
        ),
        "ended by its own disk after ten minutes": (
            spoken(exit_reason="Evicted", created_at=NOW - 601, failed_starts=("-", "-")),
            None,
        ),
        "failed by itself, soon": (spoken(exit_code=1), None),
        "being deleted": (observed([failed(deleting=True)]), None),
        "runs": (observed([a_pod(0)]), None),
        "a newer one of its index was well": (
            observed(
                [failed(name="old"), failed(name="new", created_at=2.0)],
                [an_agent("new", "failed")],
            ),
            None,
        ),
        "dead before this leader, the first": (
            observed([failed(ended_before_takeover=True)]),
            None,
        ),
        "dead before this leader, in a row": (
            observed([failed(ended_before_takeover=True, failed_starts=("a", "b"))]),
            "a b",
        ),
    },
)
def test_failed_starts_are_read_from_the_newest_pod_of_an_index(
    seen: Observed, nodes: str | None
) -> None:
    found = find_failed_starts(seen).nodes.get(0)
    assert (None if found is None else " ".join(found)) == nodes


@pytest.mark.parametrize(
    ("before", "pause_seconds"), [(0, 0), (1, 1), (2, 2), (4, 8), (7, 60), (20, 60)]
)
def test_pause_grows(before: int, pause_seconds: float) -> None:
    found = find_failed_starts(
        observed([failed(failed_starts=("node-1",) * before, ended_at=NOW - 5)])
    )
    assert found.backoff_until[0] == NOW - 5 + pause_seconds
    assert len(found.nodes[0]) <= 8


def test_stock_worker_has_failed_to_start_if_the_kubelet_says_so() -> None:
    ends: list[dict[str, object]] = [{}, START_ERROR, {"exit_code": 1, "exit_reason": "Error"}]
    pods = [failed(index, rendezvous=1, **end) for index, end in enumerate(ends)]
    assert set(find_failed_starts(observed(pods)).nodes) == {0, 1}


SIX = ("node-0",) * 5  # and this one


@situations(
    "pods, given_up",
    {
        "no command of any index can be started": (
            [failed(i, **START_ERROR, failed_starts=SIX) for i in range(2)],
            True,
        ),
        "one index has a try left": (
            [failed(0, **START_ERROR, failed_starts=SIX), failed(1, **START_ERROR)],
            False,
        ),
        "one index runs": ([failed(0, **START_ERROR, failed_starts=SIX), a_pod(1)], False),
        "kubelets reject them": ([failed(i, failed_starts=SIX) for i in range(2)], False),
    },
)
def test_job_is_given_up_only_if_no_container_of_it_can_be_started(
    pods: list[PodView], given_up: bool
) -> None:
    seen = observed(pods)
    why = why_given_up(find_failed_starts(seen), seen, 2, 3)
    assert bool(why) == given_up


def test_giving_up_says_why() -> None:
    pods = [
        failed(
            0,
            **START_ERROR,
            failed_starts=SIX,
            exit_message='exec: "pyton": executable file not found in $PATH',
        )
    ]
    seen = observed(pods)
    why = why_given_up(find_failed_starts(seen), seen, 1, 3)
    assert "pyton" in why
    assert "`command`" in why


@pytest.mark.parametrize(
    ("before", "max_failures", "given_up"),
    [(3, 3, True), (2, 3, False), (0, 0, True), (7, 100, True), (6, 100, False)],
)
def test_job_whose_script_cannot_be_set_up_is_given_up(
    before: int, max_failures: int, given_up: bool
) -> None:
    pod = failed(
        exit_code=1, failed_starts=("node-0",) * before, exit_message="ValueError: no data"
    )
    seen = observed([pod, a_pod(1)], [an_agent("w0", "failed", 0)])
    why = why_given_up(find_failed_starts(seen), seen, 2, max_failures)
    assert bool(why) == given_up
    assert not given_up or (
        f"so have {before + 1} pods of worker 0 in a row" in why and "ValueError: no data" in why
    )
