"""What tests of running agents vary; a test may have its own values by `parametrize`."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["forkserver", pytest.param("spawn", marks=pytest.mark.long)])
def start_method(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[(), ("--in-process",)], ids=["restarted", "in process"])
def option(request: pytest.FixtureRequest) -> Any:
    """Of a script whose processes start again for each group, or live on."""
    return request.param


@pytest.fixture(
    params=[pytest.param((), marks=pytest.mark.long), ("--in-process",)],
    ids=["restarted", "in process"],
)
def shown_in_process(request: pytest.FixtureRequest) -> Any:
    """As `option`, for tests that take the first way in the long tests only."""
    return request.param


@pytest.fixture(
    params=[
        pytest.param("gloo", marks=pytest.mark.long),
        "nccl_like",
        pytest.param("nccl", marks=pytest.mark.gpu),
    ]
)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A file for which scripts take their time in each step, as long as it is there."""
    (tmp_path / "slow").touch()
    return tmp_path / "slow"
