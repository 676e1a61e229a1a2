import asyncio
import base64
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from elastic_pytorch_operator.agents.token_review import REVIEW_SECONDS, TokenReviewer
from elastic_pytorch_operator.agents.token_signature import (
    AHEAD_SECONDS,
    KEYS_SECONDS,
    UNKNOWN_KEY_SECONDS,
    TokenSignatures,
)
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.interface import PodIdentity, TokenKeys

from tests.operator.agents.test_token_review import settle
from tests.operator.counted_cluster import CountedCluster
from tests.situations import situations

ISSUER = "https://kubernetes.default.svc"
POD = {
    "namespace": "default",
    "pod": {"name": "lm-worker-0", "uid": "uid-0"},
    "serviceaccount": {"name": "default", "uid": "sa"},
}
WORKER = PodIdentity("default", "lm-worker-0", "uid-0")


class SigningCluster(CountedCluster):
    """Signs tokens, and publishes the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.hangs = False
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.add_key("first")

    def clock(self) -> float:
        return self.now

    def add_key(self, name: str) -> None:
        self.keys[name] = ec.generate_private_key(ec.SECP256R1())

    def sign(self, *, key: str = "first", **claims: Any) -> str:
        """A pod's token for the operator, with other claims where they are given."""
        now = time.time()
        usual = {
            "iss": ISSUER,
            "aud": [names.TOKEN_AUDIENCE],
            "exp": now + 3600,
            "iat": now,
            "kubernetes.io": POD,
        }
        content = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(content, self.keys[key], algorithm="ES256", headers={"kid": key})

    async def get_token_keys(self) -> TokenKeys:
        self._called("get_token_keys")
        if self.hangs:
            await asyncio.Event().wait()
        found = [
            {
                **jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True),
                "kid": name,
                "alg": "ES256",
                "use": "sig",
            }
            for name, key in self.keys.items()
        ]
        return TokenKeys(ISSUER, {"keys": found})

    @property
    def reads(self) -> int:
        return self.calls.count("get_token_keys")


async def test_a_pods_token_tells_the_pod() -> None:
    cluster = SigningCluster()
    assert await TokenSignatures(cluster).identify(cluster.sign()) == WORKER


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["https://kubernetes.default.svc"]},
        {"aud": None},
        {"iss": "https://another.cluster"},
        {"iss": None},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"nbf": 8_000_000_000},
        {"kubernetes.io": None},
        {"kubernetes.io": "default"},
        {
            "kubernetes.io": {
                "namespace": "default",
                "serviceaccount": {"name": "default", "uid": "sa"},
            }
        },
        {"kubernetes.io": {"namespace": "default", "pod": "lm-worker-0"}},
    ],
    ids=str,
)
async def test_another_token_is_for_a_review(claims: dict[str, Any]) -> None:
    cluster = SigningCluster()
    assert await TokenSignatures(cluster).identify(cluster.sign(**claims)) is None


async def test_forged_signatures_are_for_a_review() -> None:
    cluster, forger = SigningCluster(), SigningCluster()
    signatures = TokenSignatures(cluster)
    assert await signatures.identify(forger.sign()) is None, "another key of the same name"
    content = jwt.decode(cluster.sign(), options={"verify_signature": False})
    assert (
        await signatures.identify(
            jwt.encode(content, None, algorithm="none", headers={"kid": "first"})
        )
        is None
    )
    public = str(jwt.algorithms.ECAlgorithm.to_jwk(cluster.keys["first"].public_key()))
    assert (
        await signatures.identify(
            jwt.encode(content, public * 2, algorithm="HS256", headers={"kid": "first"})
        )
        is None
    )


DEEP_HEADER = base64.urlsafe_b64encode(b"[" * 30_000).decode()


@situations(
    "token",
    {
        "empty": "",
        "opaque": "opaque",
        "text": "a.b.c",
        "JSON": "e30.e30.e30",
        "deep": f"{DEEP_HEADER}.e30.e30",
    },
)
async def test_what_is_no_signed_token_is_for_a_review(token: str) -> None:
    cluster = SigningCluster()
    assert await TokenSignatures(cluster).identify(token) is None


async def test_keys_are_read_once_and_again_when_they_are_old() -> None:
    cluster = SigningCluster()
    signatures = TokenSignatures(cluster, clock=cluster.clock)
    for _ in range(3):
        assert await signatures.identify(cluster.sign()) == WORKER
    assert cluster.reads == 1
    cluster.now += KEYS_SECONDS
    token = cluster.sign()
    del cluster.keys["first"]
    cluster.add_key("second")
    assert await signatures.identify(token) is None, "its key was withdrawn"
    assert await signatures.identify(cluster.sign(key="second")) == WORKER
    assert cluster.reads == 2


async def test_a_new_key_is_read_as_soon_as_a_token_names_it_and_made_up_names_cost_little() -> (
    None
):
    cluster, forger = SigningCluster(), SigningCluster()
    signatures = TokenSignatures(cluster, clock=cluster.clock)
    assert await signatures.identify(cluster.sign()) == WORKER
    for number in range(100):
        forger.add_key(f"made up {number}")
        assert await signatures.identify(forger.sign(key=f"made up {number}")) is None
    assert cluster.reads == 1
    cluster.add_key("second")
    cluster.now += UNKNOWN_KEY_SECONDS
    assert await signatures.identify(cluster.sign(key="second")) == WORKER
    assert await signatures.identify(cluster.sign()) == WORKER
    assert cluster.reads == 2


async def test_without_keys_tokens_are_for_reviews_until_there_are_some() -> None:
    cluster = SigningCluster()
    signatures = TokenSignatures(cluster, clock=cluster.clock)
    cluster.fail_next("get_token_keys", 403)
    assert await signatures.identify(cluster.sign()) is None
    assert await signatures.identify(cluster.sign()) is None
    assert cluster.reads == 1
    cluster.now += UNKNOWN_KEY_SECONDS
    assert await signatures.identify(cluster.sign()) == WORKER


@pytest.mark.parametrize("fault", ["hangs", "fails"])
@pytest.mark.parametrize(
    "age_seconds", [UNKNOWN_KEY_SECONDS + 1, AHEAD_SECONDS + 1, KEYS_SECONDS - 1]
)
async def test_known_keys_are_used_while_the_api_server_cannot_tell_of_others(
    fault: str, age_seconds: float
) -> None:
    cluster, forger = SigningCluster(), SigningCluster()
    forger.add_key("made up")
    signatures = TokenSignatures(cluster, clock=cluster.clock)
    assert await signatures.identify(cluster.sign()) == WORKER
    cluster.now += age_seconds
    cluster.hangs = fault == "hangs"
    if fault == "fails":
        cluster.fail_next("get_token_keys", 0)
    stranger = asyncio.create_task(signatures.identify(forger.sign(key="made up")))
    await settle()
    assert cluster.reads == 2
    async with asyncio.timeout(1):
        assert await signatures.identify(cluster.sign()) == WORKER
    assert stranger.done() == (fault == "fails")
    stranger.cancel()


async def test_keys_are_read_again_before_they_are_too_old_and_no_token_waits_for_it() -> None:
    cluster = SigningCluster()
    signatures = TokenSignatures(cluster, clock=cluster.clock)
    assert await signatures.identify(cluster.sign()) == WORKER
    cluster.now += AHEAD_SECONDS - 1
    assert await signatures.identify(cluster.sign()) == WORKER
    assert cluster.reads == 1
    cluster.now += 1
    assert await signatures.identify(cluster.sign()) == WORKER
    await settle()
    assert cluster.reads == 2
    cluster.now += KEYS_SECONDS - 1
    assert await signatures.identify(cluster.sign()) == WORKER
    await settle()
    assert cluster.reads == 3


async def test_after_an_error_keys_are_asked_for_again_soon_and_not_used_when_too_old() -> None:
    cluster = SigningCluster()
    signatures = TokenSignatures(cluster, clock=cluster.clock)
    assert await signatures.identify(cluster.sign()) == WORKER
    cluster.now += AHEAD_SECONDS
    for tries in range(2, 8):
        cluster.fail_next("get_token_keys", 503)
        assert await signatures.identify(cluster.sign()) == WORKER
        await settle()
        assert cluster.reads == tries
        cluster.now += UNKNOWN_KEY_SECONDS
    cluster.fail_next("get_token_keys", 503)
    assert await signatures.identify(cluster.sign()) is None
    cluster.now += UNKNOWN_KEY_SECONDS
    assert await signatures.identify(cluster.sign()) == WORKER


async def test_the_first_tokens_wait_for_the_same_read() -> None:
    cluster = SigningCluster()
    signatures = TokenSignatures(cluster, clock=cluster.clock)
    assert set(await asyncio.gather(*(signatures.identify(cluster.sign()) for _ in range(50)))) == {
        WORKER
    }
    assert cluster.reads == 1


async def test_the_api_server_reviews_a_signed_token_later_and_has_the_last_word() -> None:
    cluster = SigningCluster()
    reviewer, token = TokenReviewer(cluster, clock=cluster.clock), cluster.sign()
    assert await reviewer.identify(token) == WORKER
    await settle()
    assert "review_token" not in cluster.calls
    cluster.now += REVIEW_SECONDS
    assert await reviewer.identify(token) == WORKER
    await settle()
    assert cluster.calls.count("review_token") == 1
    assert await reviewer.identify(token) is None, "this API server knows no such token"
    cluster.now += REVIEW_SECONDS
    assert await reviewer.identify(token) is None, "and its signature does not bring it back"
