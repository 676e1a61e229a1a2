"""Which processes of a container train."""

import pytest
from elastic_pytorch_client.training_processes import Process, read_processes, training_processes

BARE, MARKED = False, True


@pytest.mark.parametrize(
    ("processes", "found"),
    [
        pytest.param({1: (0, BARE), 7: (1, BARE), 20: (7, MARKED), 21: (7, MARKED), 99: (0, BARE)}, [20, 21], id="warm"),
        pytest.param({1: (0, BARE), 20: (1, MARKED), 25: (20, BARE)}, [20], id="cold; it has started a program"),
        pytest.param({1: (0, BARE), 5: (1, BARE), 20: (5, MARKED)}, [20], id="below a shell"),
        pytest.param({1: (0, BARE), 20: (1, MARKED), 25: (20, MARKED), 26: (20, MARKED)}, [20], id="it has forked others"),
        pytest.param({1: (0, BARE), 7: (1, BARE), 99: (0, BARE)}, [], id="none runs"),
        pytest.param({20: (10, MARKED)}, [20], id="the agent's own process cannot be read"),
    ],
)
def test_training_processes(processes: dict[int, tuple[int, bool]], found: list[int]) -> None:
    assert training_processes({pid: Process(*process) for pid, process in processes.items()}) == found


def test_no_process_is_a_workers_own_without_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTIC_PYTORCH_WORKER", raising=False)
    assert read_processes() == {}
    monkeypatch.setenv("ELASTIC_PYTORCH_WORKER", "no-such-worker")
    assert read_processes() == {}
