"""Who may read the metrics, asked of an API server, over a real HTTP server."""

import asyncio

import aiohttp
import pytest
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.http.server import serving
from elastic_pytorch_operator.monitoring.probes import Probes
from elastic_pytorch_operator.monitoring.scrape_access import (
    ALLOWED_SECONDS,
    MAX_REVIEWS,
    REFUSED_SECONDS,
    REVIEWS_AT_ONCE,
    STALE_SECONDS,
    Access,
    ScrapeAccess,
)

from tests.operator.counted_cluster import CountedCluster

PROMETHEUS = "system:serviceaccount:monitoring:prometheus"
WORKER = "system:serviceaccount:default:default"


class Users(CountedCluster):
    """Knows Prometheus, who may read the metrics, and another user, who may not.

    May be slow to answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.users |= {"good": PROMETHEUS, "other": WORKER}
        self.readers.add((PROMETHEUS, "/metrics"))
        self.answering = asyncio.Event()
        self.answering.set()
        self.asking = self.most = 0

    async def review_user(self, token: str) -> Manifest | None:
        self.asking += 1
        self.most = max(self.most, self.asking)
        await self.answering.wait()
        self.asking -= 1
        return await super().review_user(token)

    def access(self, **options: int) -> ScrapeAccess:
        return ScrapeAccess(self, lambda: self.now, **options)

    def reviews(self) -> int:
        return self.calls.count("review_user")


@pytest.mark.parametrize(
    ("header", "code", "words"),
    [
        (None, 401, "a bearer token is needed"),
        ("Basic good", 401, "a bearer token is needed"),
        ("Bearer ", 401, "a bearer token is needed"),
        ("Bearer gööd", 401, "a bearer token is needed"),
        ("Bearer unknown", 401, "the token is not valid"),
        ("Bearer other", 403, "may not get the nonResourceURL /metrics"),
        ("Bearer good", 200, "text"),
        ("bearer good", 200, "text"),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/other"])
async def test_scrape_is_answered_by_its_token(
    header: str | None, code: int, words: str, path: str
) -> None:
    async def text() -> bytes:
        return b"text"

    routes = Probes(tuple, lambda: True, text).metrics_routes()
    async with serving(routes, "127.0.0.1", 0, middlewares=[Users().access().check]) as port:
        headers = {} if header is None else {"Authorization": header}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
        ):
            if path == "/metrics" or code != 200:
                assert (answer.status, words in await answer.text()) == (code, True)
                assert ("WWW-Authenticate" in answer.headers) == (code == 401)
            else:
                assert answer.status == 404


async def test_api_server_that_is_away_is_told_and_a_flood_of_tokens_has_to_wait() -> None:
    cluster = Users()
    async with (
        serving([], "127.0.0.1", 0, middlewares=[cluster.access().check]) as port,
        aiohttp.ClientSession() as session,
    ):

        async def code(token: str) -> int:
            async with session.get(
                f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
            ) as answer:
                return answer.status

        cluster.fail_next("review_user", 0)
        assert await code("good") == 503
        assert [await code(f"token-{n}") for n in range(int(REVIEWS_AT_ONCE))] == [401] * (
            int(REVIEWS_AT_ONCE) - 1
        ) + [429]


async def test_decisions_are_kept_for_a_short_time() -> None:
    cluster = Users()
    access = cluster.access()
    for token, wanted, seconds in (
        ("good", Access.ALLOWED, ALLOWED_SECONDS),
        ("other", Access.FORBIDDEN, REFUSED_SECONDS),
        ("unknown", Access.UNKNOWN, REFUSED_SECONDS),
    ):
        cluster.calls.clear()
        for later, reviews in ((0.0, 1), (seconds - 1, 1), (1.0, 2)):
            cluster.now += later
            assert await access.decide(token) is wanted
            assert cluster.reviews() == reviews, (token, later)


async def test_right_that_is_withdrawn_or_granted_counts_soon() -> None:
    cluster = Users()
    access = cluster.access()
    assert await access.decide("good") is Access.ALLOWED
    cluster.readers.clear()
    cluster.now += ALLOWED_SECONDS
    assert await access.decide("good") is Access.FORBIDDEN
    cluster.fail_next("review_user", 0)
    cluster.now += REFUSED_SECONDS
    with pytest.raises(ClusterError):
        await access.decide("good")
    cluster.readers.add((PROMETHEUS, "/metrics"))
    assert await access.decide("good") is Access.ALLOWED


@pytest.mark.parametrize("token", ["unknown", "other"])
async def test_unknown_token_is_refused_while_the_api_server_is_away(token: str) -> None:
    cluster = Users()
    cluster.fail_next("review_user" if token == "unknown" else "review_read", 0)
    access = cluster.access()
    with pytest.raises(ClusterError):
        await access.decide(token)
    assert await access.decide(token) is not Access.ALLOWED, "the error is not kept"


async def test_known_token_reads_the_metrics_while_the_api_server_is_away_or_slow() -> None:
    cluster = Users()
    access = cluster.access()
    assert await access.decide("good") is Access.ALLOWED
    cluster.now += STALE_SECONDS - 1
    cluster.fail_next("review_user", 0)
    assert await access.decide("good") is Access.ALLOWED
    cluster.answering.clear()
    assert await access.decide("good") is Access.ALLOWED, "after two seconds"
    cluster.answering.set()
    assert await access.decide("good") is Access.ALLOWED
    cluster.now += STALE_SECONDS
    cluster.fail_next("review_user", 0)
    with pytest.raises(ClusterError):
        await access.decide("good")


async def test_scrapes_that_come_together_cost_one_review_and_not_many_go_on_at_once() -> None:
    cluster = Users()
    cluster.answering.clear()
    access = cluster.access()
    asked = [asyncio.create_task(access.decide("good")) for _ in range(5)]
    asked += [asyncio.create_task(access.decide(f"token-{n}", f"10.0.0.{n}")) for n in range(20)]
    for _ in range(20):
        await asyncio.sleep(0)
    asked[0].cancel()  # a client that goes away takes no answer from the others
    cluster.answering.set()
    assert await asyncio.gather(*asked[1:]) == [Access.ALLOWED] * 4 + [Access.UNKNOWN] * 20
    assert cluster.reviews() == 21
    assert cluster.most == MAX_REVIEWS


async def test_what_is_kept_is_bounded_and_has_no_token_in_it() -> None:
    cluster = Users()
    access = cluster.access(max_remembered=3)
    assert await access.decide("good") is Access.ALLOWED
    for n in range(9):
        await access.decide(f"token-{n}", f"10.0.0.{n}")
    assert await access.decide("good") is Access.ALLOWED
    assert cluster.reviews() == 10, "wrong tokens do not push out the right one"
    await access.decide("token-0", "10.0.1.0")
    assert cluster.reviews() == 11
    kept = repr({name: value for name, value in vars(access).items() if name != "_cluster"})
    assert "good" not in kept
    assert "token-" not in kept


async def test_address_may_show_few_unknown_tokens() -> None:
    cluster = Users()
    access = cluster.access()
    found = [await access.decide(f"token-{n}", "10.0.0.1") for n in range(int(REVIEWS_AT_ONCE) + 2)]
    assert found[:-2] == [Access.UNKNOWN] * int(REVIEWS_AT_ONCE)
    assert all(isinstance(wait, float) and wait > 0 for wait in found[-2:])
    assert await access.decide("good", "10.0.0.2") is Access.ALLOWED
    assert await access.decide("good", "10.0.0.1") is Access.ALLOWED, "a known one costs nothing"
