"""A group whose workers and whose operator have addresses of IPv6 only."""

import socket
from pathlib import Path

import pytest

from tests.worker_image.agents import SCRIPTS, Events, started_agents
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

WORKERS = ("w0", "w1")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.long
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_workers_meet_and_train_at_addresses_of_ipv6(tmp_path: Path) -> None:
    operator, events = ScriptedOperator("::1"), Events(tmp_path / "events")
    with started_agents(operator.url, tmp_path) as start:
        agents = [start(worker, SCRIPTS / "train.py", USE_LIBUV=0) for worker in WORKERS]
        operator.begin(*WORKERS)
        operator.wait_for("running", *WORKERS)
        operator.wait(lambda: len(events.all(what="step", step=2, world=2)) == 2)
        assert all("of 2, store ::1:" in agent.text() for agent in agents)
    operator.go_away()
