from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m "... not torch"` modules that are marked so are not even imported, which takes seconds."""
    unwanted = "not torch" in config.option.markexpr and collection_path.suffix == ".py"
    return (unwanted and "pytest.mark.torch" in collection_path.read_text()) or None


@pytest.fixture
def operator() -> Iterator[ScriptedOperator]:
    scripted = ScriptedOperator()
    yield scripted
    scripted.go_away()


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(tmp_path / "events")


@pytest.fixture
def agents(operator: ScriptedOperator, events: Events, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """How to start one: `agents("w0", script, arguments…, VARIABLE=value)`."""
    started: list[Agent] = []

    def start(worker: str, *arguments: Any, **environment: Any) -> Agent:
        started.append(Agent(worker, operator.url, tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for agent in started:
        agent.kill()
        agent.wait()
        print(f"--- {agent.worker}, exit code {agent.process.returncode}\n{agent.text()}")
