import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any

import pytest
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch_operator.api.resources import SECRETS
from elastic_pytorch_operator.http.server import serving
from elastic_pytorch_operator.tls.rotation import (
    DAY,
    Pair,
    Trust,
    signing,
    unexpired,
    wants_authority,
    wants_serving,
)
from elastic_pytorch_operator.tls.secret import (
    SECRET_NAME,
    keep_trust,
    load_certificate,
    read_trust,
    renew,
    server_context,
    write_trust,
)

from tests.operator.counted_cluster import CountedCluster
from tests.operator.faulty_cluster import add_object

NOW = 1_800_000_000.0
HOSTS = ("localhost",)


def an_authority(days_ago: float) -> Pair:
    return Pair(f"made {days_ago:.0f} days ago", "key", NOW - days_ago * DAY)


@pytest.mark.parametrize(
    ("ages", "another"),
    [
        ([], True),
        ([1], False),
        ([1824], False),
        ([1825], True),
        ([1825, 1], False),
        ([3000, 1900], True),
    ],
)
def test_when_another_authority_is_made(ages: list[float], another: bool) -> None:
    assert wants_authority([an_authority(age) for age in ages], NOW) is another


@pytest.mark.parametrize(
    ("ages", "signs"),
    [([0], 0), ([1825, 0], 1825), ([2189, 364], 2189), ([2190, 365], 365), ([3650, 1825, 0], 1825)],
)
def test_an_authority_signs_once_pods_have_had_a_year_to_learn_of_it(
    ages: list[float], signs: float
) -> None:
    authorities = unexpired([an_authority(age) for age in ages], NOW)
    assert signing(authorities, NOW) == an_authority(signs)


def test_what_is_shown_is_made_again_in_time() -> None:
    signer = an_authority(400)
    trust = Trust((signer,), an_authority(59), signer.certificate, HOSTS)
    assert trust.shown.ends_at == NOW + 31 * DAY
    assert not wants_serving(trust, signer, HOSTS, NOW)
    assert wants_serving(trust, signer, HOSTS, NOW + 2 * DAY), "a month before its end"
    assert wants_serving(trust, an_authority(500), HOSTS, NOW), "another signs now"
    assert wants_serving(trust, signer, ("elsewhere",), NOW)
    assert wants_serving(replace(trust, serving=an_authority(-1)), signer, HOSTS, NOW), (
        "the clock has been set back"
    )
    assert wants_serving(replace(trust, serving=None), signer, HOSTS, NOW)


def test_an_authority_outlives_all_that_it_signs_by_years() -> None:
    trust, ends = Trust(), {}
    for day in range(0, 12_000, 30):
        trust = renew(trust, HOSTS, NOW + day * DAY)
        for pair in trust.authorities:
            ends[pair.certificate] = day
        assert trust.signer in trust.bundle
        if day >= 3650:
            # Whatever pod was made within the last year trusts what is shown today.
            assert signing(trust.authorities, NOW + (day - 364) * DAY).made_at <= NOW + day * DAY
    assert len(ends) == 7, "one in five years"


def with_empty_secret() -> CountedCluster:
    """A cluster with the Secret as the chart renders it."""
    cluster = CountedCluster()
    add_object(cluster, "Secret", "system", SECRET_NAME)
    return cluster


async def test_secret_is_filled_once_and_then_read() -> None:
    cluster = with_empty_secret()
    first = await keep_trust(cluster, "system", HOSTS, NOW)
    assert await keep_trust(cluster, "system", HOSTS, NOW + DAY) == first
    assert cluster.calls.count("replace Secret") == 1
    renewed = await keep_trust(cluster, "system", HOSTS, NOW + 70 * DAY)
    assert renewed.serving != first.serving
    assert renewed.bundle == first.bundle
    secret = await cluster.get(SECRETS, "system", SECRET_NAME)
    assert read_trust(secret) == (renewed, ())
    assert "PRIVATE" not in repr(renewed), "no key in any log"


def damage(trust: Trust, *path: str | int, value: object) -> bytes:
    """What is in the Secret, but for one thing."""
    state = asdict(trust)
    place: Any = state
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(state).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
    ],
)
async def test_damaged_secret_is_made_again(text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    cluster = with_empty_secret()
    first = await keep_trust(cluster, "system", HOSTS, NOW)
    secret = await cluster.get(SECRETS, "system", SECRET_NAME)
    await cluster.replace(
        SECRETS, {**secret, "data": {"trust.json": base64.b64encode(text).decode()}}
    )
    trust = await keep_trust(cluster, "system", HOSTS, NOW)
    assert len(trust.authorities) == 1
    assert trust.bundle != first.bundle
    assert "Secret system/elastic-pytorch-operator-tls: trust.json" in caplog.text
    assert " is damaged" in caplog.text
    load_certificate(trust.shown, server_context())
    assert await keep_trust(cluster, "system", HOSTS, NOW) == trust, "it has been written"


async def test_damaged_secret_is_restored_by_the_leader_that_has_read_it_before() -> None:
    cluster = with_empty_secret()
    first = await keep_trust(cluster, "system", HOSTS, NOW)
    secret = await cluster.get(SECRETS, "system", SECRET_NAME)
    for text in ("", base64.b64encode(b"{").decode()):
        await cluster.replace(SECRETS, {**secret, "data": {"trust.json": text}})
        secret = await cluster.get(SECRETS, "system", SECRET_NAME)
        kept = await keep_trust(cluster, "system", HOSTS, NOW, first)
        assert (kept == first) is bool(text), "to empty it is a way to ask for new certificates"
        secret = await cluster.get(SECRETS, "system", SECRET_NAME)
        assert read_trust(secret) == (kept, ())


@pytest.mark.parametrize(
    ("path", "value", "told", "kept"),
    [
        (("serving", "key"), "no key", "trust.json: serving is damaged", 2),
        (("serving", "certificate"), "", "trust.json: serving is damaged", 2),
        (("authorities", 0, "key"), "no key", "trust.json: authorities[0] is damaged", 1),
        (
            ("authorities", 1, "certificate"),
            "no certificate",
            "trust.json: authorities[1] is damaged",
            1,
        ),
    ],
)
async def test_what_is_whole_in_a_damaged_secret_is_kept(
    path: tuple[str | int, ...], value: str, told: str, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    trust = renew(renew(Trust(), HOSTS, NOW - 1900 * DAY), HOSTS, NOW)
    cluster = with_empty_secret()
    text = base64.b64encode(damage(trust, *path, value=value)).decode()
    secret = await cluster.get(SECRETS, "system", SECRET_NAME)
    await cluster.replace(SECRETS, {**secret, "data": {**write_trust(trust), "trust.json": text}})
    mended = await keep_trust(cluster, "system", HOSTS, NOW)
    assert told in caplog.text
    assert sum(pair in trust.authorities for pair in mended.authorities) == kept
    load_certificate(mended.shown, server_context())
    caplog.clear()
    assert await keep_trust(cluster, "system", HOSTS, NOW) == mended
    assert "damaged" not in caplog.text


@asynccontextmanager
async def an_operator(tls: ssl.SSLContext) -> AsyncIterator[int]:
    async with serving([], "127.0.0.1", 0, tls=tls) as port:
        yield port


async def connect(port: int, authorities: str) -> None:
    connection = OperatorConnection("localhost", port, "", authorities)
    (await asyncio.to_thread(connection.open_stream, "/v1/agent")).close()


async def test_agents_trust_the_operator_and_nobody_else_while_certificates_change() -> None:
    now = time.time()  # which certificates are judged by
    first = renew(Trust(), HOSTS, now - 2200 * DAY)  # six years ago
    after = renew(first, HOSTS, now - 370 * DAY)  # another authority was made then
    today = renew(after, HOSTS, now)
    assert today.signer == after.authorities[1].certificate, "which signs today"
    tls = server_context()
    load_certificate(
        replace(after, serving=renew(after, HOSTS, now - 360 * DAY).serving).shown, tls
    )
    async with an_operator(tls) as port:
        load_certificate(today.shown, tls)  # while it serves
        await connect(port, today.bundle)
        await connect(port, after.bundle)  # what a pod was given a year ago
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, first.bundle)
        stranger = renew(Trust(), HOSTS, now)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, stranger.bundle)
        load_certificate(stranger.shown, tls)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, today.bundle)


async def test_certificate_for_another_name_is_not_taken() -> None:
    trust = renew(Trust(), ("elsewhere.example",), time.time())
    tls = server_context()
    load_certificate(trust.shown, tls)
    async with an_operator(tls) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
            await connect(port, trust.bundle)
