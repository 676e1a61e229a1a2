"""What is due happens in order, also if the time before it is skipped."""

import asyncio
from collections.abc import Callable

import pytest

from tests.operator.virtual_time import run_in_virtual_time
from tests.simulation.clock import Clock


@pytest.mark.parametrize("skipped_until", [0.0, 7.0, 9.5])
def test_what_is_due_happens_in_order_whatever_is_skipped(skipped_until: float) -> None:
    happened: list[tuple[str, float]] = []

    async def run() -> None:
        clock = Clock(asyncio.get_running_loop())

        def note(name: str) -> Callable[[], None]:
            return lambda: happened.append((name, round(clock.seconds, 3)))

        clock.after(20.0, note("c"))
        clock.after(10.0, note("a"))
        clock.after(10.0, note("b"))
        clock.after(5.0, note("cancelled")).cancel()
        assert clock.next_at == pytest.approx(10.0)
        clock.skip_until(skipped_until)
        await clock.pass_until(15.0)

    run_in_virtual_time(run())
    assert happened == [("a", 10.0), ("b", 10.0)]


def test_skipped_time_does_not_pass_on_the_event_loop() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        clock = Clock(loop)
        clock.skip_until(1000.0)
        clock.skip_until(500.0)
        assert (round(clock.seconds), round(loop.time())) == (1000, 0)

    run_in_virtual_time(run())
