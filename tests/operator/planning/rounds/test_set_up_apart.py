"""With `spec.prepare`, a failed process is set up again apart, if the group can go on."""

from typing import Any

from elastic_pytorch_operator.planning.workers.liveness import Candidate

from tests.operator.builders import NOW, a_candidate, a_round, declare_next
from tests.situations import situations


def candidate(index: int, **fields: Any) -> Candidate:
    return a_candidate(index, **{"keeps_processes": True, **fields})


KILLED = {"failed": True, "failure": "killed by SIGKILL", "state_since": NOW - 1}
TWO = (candidate(0), candidate(1))
ECHO = {"failed": True, "state_since": NOW - 1}


@situations(
    "candidates, job, expected",
    {
        "the others keep theirs": (
            [candidate(0, **ECHO), candidate(1), candidate(2, **KILLED)],
            {},
            "w0 w1",
        ),
        "another needs a new process, too": (
            [
                candidate(0, **ECHO),
                candidate(1, **ECHO, keeps_processes=False),
                candidate(2, **KILLED),
            ],
            {},
            "w0 w1 w2",
        ),
        "a fixed size": ([*TWO, candidate(2, **KILLED)], {"minimum": 3}, "w0 w1 w2"),
        "a fixed size, and a spare": (
            [*TWO, candidate(2, **KILLED), candidate(3)],
            {"minimum": 3},
            "w0 w1 w3",
        ),
        "a size that is not allowed": (
            [*TWO, candidate(2, **KILLED)],
            {"maximum": 3, "resizePolicy": {"allowedReplicas": [1, 3]}},
            "w0",
        ),
        "two have failed": (
            [candidate(0), candidate(1, **KILLED), candidate(2, **KILLED)],
            {},
            "w0",
        ),
        "all have failed": ([candidate(i, **KILLED) for i in range(3)], {}, "w0 w1 w2"),
        "all have failed, a spare has not": (
            [*(candidate(i, **KILLED) for i in range(3)), candidate(3)],
            {},
            "w0 w1 w2",
        ),
        "nothing but echoes": ([candidate(i, **ECHO) for i in range(3)], {}, "w0 w1 w2"),
        "new processes do not prepare": (
            [*TWO, candidate(2, **KILLED)],
            {"prepare": None},
            "w0 w1 w2",
        ),
    },
)
def test_who_goes_on(candidates: list[Candidate], job: dict[str, Any], expected: str) -> None:
    declared = declare_next(a_round(0, 1, 2), candidates, job={"prepare": {}, **job})
    assert " ".join(declared.workers) == expected
    assert declared.reason == "WorkerFailed"
