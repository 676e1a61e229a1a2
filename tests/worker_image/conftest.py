import logging
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from elastic_pytorch.log import logger
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.progress.report import REPORT_SOCKET

from tests.worker_image.agents import Agents, Events, started_agents
from tests.worker_image.object_storage import Bucket, Proxy, S3Server
from tests.worker_image.scripted_operator import ScriptedOperator

BUCKETS = count(1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m "... not torch"` does not import modules that are marked so, which takes seconds."""
    unwanted = "not torch" in config.option.markexpr and collection_path.suffix == ".py"
    return (unwanted and "pytest.mark.torch" in collection_path.read_text()) or None


@pytest.fixture(autouse=True)
def nothing_is_left_to_save() -> Iterator[None]:
    yield
    if (last := sys.modules.get("elastic_pytorch.state.last_commits")) is not None:
        last.unfinished.clear()
        last.last_commits.clear()


@pytest.fixture(autouse=True)
def without_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_SOCKET, raising=False)
    monkeypatch.delenv(REPORT_SOCKET, raising=False)


@pytest.fixture
def operator() -> Iterator[ScriptedOperator]:
    scripted = ScriptedOperator()
    yield scripted
    scripted.go_away()


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(tmp_path / "events")


@pytest.fixture
def agents(operator: ScriptedOperator, events: Events, tmp_path: Path) -> Iterator[Agents]:
    """How to start one: `agents("w0", script, arguments…, VARIABLE=value)`."""
    with started_agents(operator.url, tmp_path) as start:
        yield start


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    # An agent's logger does not, should one have been started here.
    before, logger.propagate = logger.propagate, True
    caplog.set_level(logging.INFO, logger.name)
    yield caplog
    logger.propagate = before


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket that this process finds, and the processes that it starts."""
    made = Bucket(f"bucket-{next(BUCKETS)}", s3_server, Proxy(s3_server.port))
    s3_server.make_bucket(made.name)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    yield made
    made.proxy.stop()
