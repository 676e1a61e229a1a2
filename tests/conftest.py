"""What all tests rely on."""

import signal

import pytest
from hypothesis import settings

from tests.hypothesis_examples import ALL, UNIT

# Without a deadline for each example: that the machine is busy is no failure.
settings.register_profile("all", max_examples=ALL, deadline=None)
settings.register_profile("unit", max_examples=UNIT, deadline=None)
settings.load_profile("all")  # --hypothesis-profile replaces it before any test is imported


def pytest_configure() -> None:
    """Interrupts are not ignored, as a shell has it for what it runs in the background: all that tests start would ignore them, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need a GPU are skipped without one."""
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU: torch.cuda.is_available() says that there is none")
