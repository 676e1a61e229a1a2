"""What handshakes cost the event loop, on a real server over TLS."""

import multiprocessing

import pytest

from tests.operator.agents_server import STRANGER, serving_agents
from tests.operator.flooder import begin_handshakes
from tests.operator.longest_turn import MAX_TURN_SECONDS, longest_turn, without_search_for_garbage


@pytest.mark.process
async def test_no_turn_is_long_while_a_stranger_begins_many_handshakes_together() -> None:
    turns = []
    async with serving_agents() as (server, _):
        with without_search_for_garbage():
            for _ in range(3):
                process = multiprocessing.get_context("spawn").Process(
                    target=begin_handshakes, args=(server.port, STRANGER, 100)
                )
                process.start()
                longest = 0.0
                while process.is_alive():
                    longest = max(longest, await longest_turn(0.1))
                assert process.exitcode == 0, "all are answered"
                turns.append(longest)
    print(f"the longest turns of each attack: {', '.join(f'{turn * 1000:.1f} ms' for turn in turns)}")
    assert min(turns) < MAX_TURN_SECONDS
