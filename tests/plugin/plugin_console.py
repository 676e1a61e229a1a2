"""What the client draws, as text; and time that passes by sleeping only."""

import io
from collections.abc import Callable
from typing import Any

from elastic_pytorch_client.watch import Clock
from rich.console import Console, RenderableType


def text_of(shown: RenderableType, width: int = 120) -> str:
    """What stands on the screen, without colours and without what is empty at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(shown, crop=False)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], Any] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)
