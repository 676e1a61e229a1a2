import asyncio

import pytest
from elastic_pytorch_operator.agents.token_review import (
    MAX_FIRST_REVIEWS,
    MAX_LATER_REVIEWS,
    RETRY_SECONDS,
    REVIEW_SECONDS,
    TokenReviewer,
    TooManyTokensError,
)
from elastic_pytorch_operator.cluster.interface import ClusterError, PodIdentity

from tests.operator.counted_cluster import CountedCluster


class Tokens(CountedCluster):
    """Knows every token, until it is told to know none; may be slow to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.known = True
        self.now = 1000.0
        self.answering = asyncio.Event()
        self.answering.set()
        self.reviewed: list[str] = []

    def clock(self) -> float:
        return self.now

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        self.reviewed.append(token)
        await self.answering.wait()
        await super().review_token(token, audience)
        return identity_of(token) if self.known else None


def identity_of(token: str) -> PodIdentity:
    return PodIdentity("default", token, f"uid-{token}")


async def settle() -> None:
    """Lets reviews in the background go as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def count_reviews(
    reviewer: TokenReviewer, cluster: Tokens, tokens: list[str], *, looks: int, every_seconds: float
) -> list[int]:
    """Shows all tokens again and again; returns how many were reviewed each time."""
    counts = []
    for _ in range(looks):
        cluster.reviewed.clear()
        cluster.now += every_seconds
        for token in tokens:
            await reviewer.identify(token)
        before = -1
        while len(cluster.reviewed) > before:
            before = len(cluster.reviewed)
            await settle()
        counts.append(before)
    return counts


async def test_known_token_is_served_while_it_is_reviewed_again() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, clock=cluster.clock)
    await reviewer.identify("mine")
    cluster.now += REVIEW_SECONDS
    cluster.answering.clear()
    for _ in range(3):
        async with asyncio.timeout(10):
            assert await reviewer.identify("mine") == identity_of("mine"), (
                "nothing waits for an API server that is slow"
            )
        await settle()
    assert cluster.reviewed == ["mine"] * 2, "which is asked once"
    cluster.answering.set()
    await settle()
    cluster.now += REVIEW_SECONDS / 2 - 1
    await reviewer.identify("mine")
    await settle()
    assert cluster.reviewed == ["mine"] * 2


async def test_new_token_on_a_known_clients_connection_is_reviewed_while_it_is_served() -> None:
    """Kubelets renew the tokens of a thousand pods that began together at the same time."""
    cluster = Tokens()
    cluster.answering.clear()
    reviewer, client = TokenReviewer(cluster, clock=cluster.clock), identity_of("mine")
    for _ in range(3):
        async with asyncio.timeout(10):
            assert await reviewer.identify("renewed", "10.0.0.1", client) == client
        await settle()
    assert cluster.reviewed == ["renewed"]
    cluster.known = False
    cluster.answering.set()
    await settle()
    assert await reviewer.identify("renewed", "10.0.0.1", client) is None, "it was not valid"


async def test_token_that_turns_out_to_be_invalid_is_not_taken_any_more() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, clock=cluster.clock)
    await reviewer.identify("mine")
    cluster.known = False
    cluster.now += REVIEW_SECONDS
    assert await reviewer.identify("mine") is not None
    await settle()
    assert await reviewer.identify("mine") is None


async def test_api_server_that_fails_is_left_alone_for_a_while() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, clock=cluster.clock)
    await reviewer.identify("mine")
    cluster.now += REVIEW_SECONDS
    cluster.fail_next("review_token", 500)
    for _ in range(3):
        assert await reviewer.identify("mine") == identity_of("mine")
        await settle()
    assert len(cluster.reviewed) == 2
    cluster.now += RETRY_SECONDS
    await reviewer.identify("mine")
    await settle()
    assert len(cluster.reviewed) == 3


async def test_tokens_reviewed_together_are_not_due_again_together() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, clock=cluster.clock)
    tokens = [f"token-{n}" for n in range(500)]
    for number, token in enumerate(tokens):
        await reviewer.identify(token, f"10.0.0.{number % 50}")
    due = await count_reviews(
        reviewer, cluster, tokens, looks=10, every_seconds=REVIEW_SECONDS / 10
    )
    assert due[:4] == [0] * 4
    assert sum(due) >= 500
    assert max(due) < 500 / 3


async def test_thousands_of_tokens_are_reviewed_less_often_each() -> None:
    cluster = Tokens()
    tokens = [f"token-{n}" for n in range(9_000)]
    reviewer = TokenReviewer(cluster, clock=cluster.clock, heartbeat_seconds=lambda _: 9.0)
    for number, token in enumerate(tokens):
        await reviewer.identify(token, f"10.0.0.{number % 100}")
    reviewed = await count_reviews(
        reviewer, cluster, tokens, looks=20, every_seconds=REVIEW_SECONDS / 4
    )
    assert sum(reviewed) >= 9_000, "each has its turn"
    assert sum(reviewed[8:]) / 12 < 2 * 10.0 * REVIEW_SECONDS / 4, "some ten a second"


async def test_replaced_tokens_do_not_count() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, clock=cluster.clock)
    for number in range(9_000):
        await reviewer.identify(f"replaced-{number}", f"10.0.0.{number % 100}")
    await reviewer.identify("mine")
    assert await count_reviews(
        reviewer, cluster, ["mine"], looks=1, every_seconds=REVIEW_SECONDS
    ) == [1]


async def test_new_agents_do_not_wait_for_reviews_of_known_ones() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, clock=cluster.clock)
    for number in range(MAX_LATER_REVIEWS + 5):
        await reviewer.identify(f"old-{number}")
    cluster.now += REVIEW_SECONDS
    cluster.answering.clear()
    cluster.reviewed.clear()
    for number in range(MAX_LATER_REVIEWS + 5):
        await reviewer.identify(f"old-{number}")
    await settle()
    assert len(cluster.reviewed) == MAX_LATER_REVIEWS
    new = [
        asyncio.create_task(reviewer.identify(f"new-{number}"))
        for number in range(MAX_FIRST_REVIEWS + 5)
    ]
    await settle()
    assert sum(token.startswith("new") for token in cluster.reviewed) == MAX_FIRST_REVIEWS
    cluster.answering.set()
    async with asyncio.timeout(10):
        assert None not in await asyncio.gather(*new)


async def test_answer_is_remembered_also_if_the_agent_has_given_up_waiting() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, clock=cluster.clock)
    cluster.answering.clear()
    asking = asyncio.create_task(reviewer.identify("mine"))
    await settle()
    asking.cancel()
    await settle()
    cluster.answering.set()
    await settle()
    assert await reviewer.identify("mine") == identity_of("mine")
    assert cluster.reviewed == ["mine"]


async def test_wrong_tokens_do_not_push_out_the_right_ones() -> None:
    cluster = Tokens()
    reviewer = TokenReviewer(cluster, max_remembered=5)
    assert await reviewer.identify("mine") is not None
    cluster.known = False
    for n in range(20):
        assert await reviewer.identify(f"forged-{n}") is None
    cluster.fail_next("review_token", 0)
    assert await reviewer.identify("mine") is not None, "it is remembered, so nobody is asked"


async def test_each_address_has_its_own_allowance() -> None:
    reviewer = TokenReviewer(Tokens())
    with pytest.raises(TooManyTokensError) as refusal:
        for n in range(1000):
            await reviewer.identify(f"token-{n}", "10.0.0.1")
    assert 0 < refusal.value.retry_seconds < 1
    assert await reviewer.identify("another", "10.0.0.2") is not None
    assert await reviewer.identify("token-1", "10.0.0.1") is not None, "what is known is free"


async def test_api_server_that_is_away_is_no_verdict() -> None:
    cluster = Tokens()
    cluster.fail_next("review_token", 0)
    reviewer = TokenReviewer(cluster)
    with pytest.raises(ClusterError):
        await reviewer.identify("mine")
    assert await reviewer.identify("mine") is not None
