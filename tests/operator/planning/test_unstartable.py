from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.planning.completion import GIVE_UP_SECONDS, why_it_cannot_start

from tests.operator.builders import NOW, a_pending_pod, a_pod
from tests.situations import situations

LONG_AGO = NOW - GIVE_UP_SECONDS
PULL = "ImagePullBackOff of image nope:1: not found"


@situations(
    "pods, hopeless",
    {
        "no image has such a name": ([a_pending_pod(0, waiting="InvalidImageName", stuck_since=NOW)], True),
        "pulled in vain for long": ([a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO)], True),
        "has waited for room for long": ([a_pending_pod(0, waiting=PULL, created_at=1.0, stuck_since=NOW - 1)], False),
        "pulled in vain for a moment": ([a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO + 1)], False),
        "one of them runs": ([a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO), a_pod(1)], False),
        "one only waits for room": (
            [a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO), a_pending_pod(1, waiting="Unschedulable: full")],
            False,
        ),
        "there are none yet": ([], False),
    },
)
def test_cannot_start(pods: list[PodView], hopeless: bool) -> None:
    assert bool(why_it_cannot_start(pods, NOW)[0]) == hopeless


def test_looks_again_when_patience_ends() -> None:
    assert why_it_cannot_start([a_pending_pod(0, waiting=PULL, stuck_since=NOW - 10)], NOW) == ("", NOW - 10 + GIVE_UP_SECONDS)
