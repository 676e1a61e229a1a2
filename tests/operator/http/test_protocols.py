"""What handshakes cost the event loop, on a real server over TLS."""

import multiprocessing

import pytest

from tests.operator.agents_server import STRANGER, serving_agents
from tests.operator.event_loop_time import MAX_TURN_CALLS, calls_in_the_best_try, longest_turn
from tests.operator.flooder import begin_handshakes


@pytest.mark.process
async def test_no_turn_is_long_while_a_stranger_begins_many_handshakes_together() -> None:
    async def in_an_attack() -> float:
        process = multiprocessing.get_context("spawn").Process(
            target=begin_handshakes, args=(server.port, STRANGER, 100)
        )
        process.start()
        longest = 0.0
        while process.is_alive():
            longest = max(longest, await longest_turn(0.1))
        assert process.exitcode == 0, "all are answered"
        return longest

    async with serving_agents() as (server, _):
        assert await calls_in_the_best_try(in_an_attack) < MAX_TURN_CALLS
