"""What all tests rely on."""

import signal


def pytest_configure() -> None:
    """Interrupts are not ignored, as a shell has it for what it runs in the background: all that tests start would ignore them, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
