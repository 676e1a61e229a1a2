import pytest
from elastic_pytorch_client.training_processes import Process, read_processes, training_processes

from tests.situations import situations

BARE, MARKED = False, True


@situations(
    "processes, found",
    {
        "warm": (
            {1: (0, BARE), 7: (1, BARE), 20: (7, MARKED), 21: (7, MARKED), 99: (0, BARE)},
            [20, 21],
        ),
        "cold; it has started a program": ({1: (0, BARE), 20: (1, MARKED), 25: (20, BARE)}, [20]),
        "below a shell": ({1: (0, BARE), 5: (1, BARE), 20: (5, MARKED)}, [20]),
        "it has forked others": (
            {1: (0, BARE), 20: (1, MARKED), 25: (20, MARKED), 26: (20, MARKED)},
            [20],
        ),
        "none runs": ({1: (0, BARE), 7: (1, BARE), 99: (0, BARE)}, []),
        "the agent's own process cannot be read": ({20: (10, MARKED)}, [20]),
    },
)
def test_training_processes(processes: dict[int, tuple[int, bool]], found: list[int]) -> None:
    assert (
        training_processes({pid: Process(*process) for pid, process in processes.items()}) == found
    )


def test_no_process_is_a_workers_own_without_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ELASTIC_PYTORCH_WORKER", raising=False)
    assert read_processes() == {}
    monkeypatch.setenv("ELASTIC_PYTORCH_WORKER", "no-such-worker")
    assert read_processes() == {}
