import io
from collections.abc import Callable
from datetime import datetime
from functools import partial

import pytest
from elastic_pytorch_client import cli
from elastic_pytorch_client.verbs.context import Context
from rich.console import Console

from tests.plugin.plugin_console import FakeTime
from tests.plugin.recorded_cluster import RecordedCluster


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def epj(fake_time: FakeTime) -> Callable[..., tuple[int, str]]:
    """Runs a command line; returns its exit code and what it printed."""

    def run(
        cluster: RecordedCluster, *words: str, now: datetime | None = None, width: int = 130
    ) -> tuple[int, str]:
        console = Console(file=io.StringIO(), width=width, highlight=False)
        make = partial(Context, clock=fake_time.clock, **({"now": lambda: now} if now else {}))
        code = cli.run(words, lambda access: cluster, console, make)
        assert isinstance(console.file, io.StringIO)
        return code, "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())

    return run
