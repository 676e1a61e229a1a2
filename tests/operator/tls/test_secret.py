import asyncio
import base64
import json
import time
from dataclasses import asdict, replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from elastic_pytorch_operator.api.resources import SECRETS
from elastic_pytorch_operator.tls.certificates import make_authority, make_serving
from elastic_pytorch_operator.tls.rotation import DAY, SERVING_DAYS, Trust
from elastic_pytorch_operator.tls.secret import (
    BUNDLE_KEY,
    SECRET_NAME,
    STATE_KEY,
    UnusableSecretError,
    keep_trust,
    load_certificate,
    read_existing,
    renew,
    server_context,
    write_trust,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.any_jobs import any_objects
from tests.operator.counted_cluster import CountedCluster
from tests.operator.faulty_cluster import add_object

NOW = 1_800_000_000.0
HOSTS = ("localhost",)
TRUST = renew(renew(Trust(), HOSTS, NOW - 1900 * DAY), HOSTS, NOW)
STATE = json.loads(json.dumps(asdict(TRUST)))
DATA = write_trust(TRUST)


async def keep(
    data: dict[str, Any] | None, held: Trust | None = None, now: float = NOW
) -> tuple[Trust, list[str], dict[str, Any]]:
    """What is trusted with these data, how often two passes wrote, and what the Secret holds."""
    cluster = CountedCluster()
    add_object(cluster, "Secret", "system", SECRET_NAME)
    await cluster.replace(
        SECRETS, {**await cluster.get(SECRETS, "system", SECRET_NAME), "data": data}
    )
    before = len(cluster.calls)
    trust = await keep_trust(cluster, "system", HOSTS, now, held)
    assert await keep_trust(cluster, "system", HOSTS, now, trust) == trust
    found = await cluster.get(SECRETS, "system", SECRET_NAME)
    return trust, cluster.calls[before:], found["data"]


def check(trust: Trust, now: float) -> None:
    """The certificates are those of now."""
    load_certificate(trust.shown, server_context())
    assert trust.serving is not None
    for pair in (*trust.authorities, trust.serving):
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        assert (
            certificate.not_valid_before_utc.timestamp()
            < now
            < certificate.not_valid_after_utc.timestamp()
        )


@given(any_objects(STATE), st.booleans(), st.sampled_from([0, 30, 400, 1750, 3000]))
def test_whatever_the_state_holds_certificates_are_good_and_written_once(
    state: Any, holds: bool, days: int
) -> None:
    data = {**DATA, STATE_KEY: base64.b64encode(json.dumps(state).encode()).decode()}
    now = NOW + days * DAY
    trust, calls, kept = asyncio.run(keep(data, TRUST if holds else None, now))
    check(trust, now)
    assert calls.count("replace Secret") <= 1
    assert base64.b64decode(kept[BUNDLE_KEY]).decode() == trust.bundle


@given(
    st.none()
    | st.dictionaries(
        st.sampled_from([STATE_KEY, BUNDLE_KEY, "mine"]), st.text(max_size=20) | st.none()
    )
)
def test_whatever_the_data_are_certificates_are_good_and_written_once(
    data: dict[str, Any] | None,
) -> None:
    trust, calls, _ = asyncio.run(keep(data))
    check(trust, NOW)
    assert calls.count("replace Secret") == 1


def test_bundle_for_other_clients_is_restored_without_a_change_of_what_is_trusted() -> None:
    older = replace(TRUST, authorities=TRUST.authorities[:1])
    for bundle in ({}, {BUNDLE_KEY: base64.b64encode(b"another").decode()}):
        trust, calls, data = asyncio.run(keep({STATE_KEY: DATA[STATE_KEY], **bundle}, older))
        assert trust == TRUST
        assert calls.count("replace Secret") == 1
        assert data[BUNDLE_KEY] == DATA[BUNDLE_KEY]


def test_a_time_that_is_not_the_certificates_own_is_damage() -> None:
    """An authority that seems never to end would stay when its certificate has ended."""
    for made_at in (NOW + 9000 * DAY, float("inf"), float("nan"), 10**310, -1, "0"):
        state = {**STATE, "serving": {**STATE["serving"], "made_at": made_at}}
        data = {**DATA, STATE_KEY: base64.b64encode(json.dumps(state).encode()).decode()}
        trust, _, _ = asyncio.run(keep(data))
        assert trust.authorities == TRUST.authorities, made_at
        assert trust.serving != TRUST.serving


def test_a_serving_certificate_of_another_signer_is_replaced() -> None:
    other = renew(Trust(), HOSTS, NOW)
    state = {**STATE, "serving": asdict(make_serving(other.authorities[0], HOSTS, NOW))}
    data = {**DATA, STATE_KEY: base64.b64encode(json.dumps(state).encode()).decode()}
    trust, _, _ = asyncio.run(keep(data))
    assert trust.serving is not None
    shown, signer = (
        x509.load_pem_x509_certificate(text.encode())
        for text in (trust.serving.certificate, trust.signer)
    )
    shown.verify_directly_issued_by(signer)


TODAY = time.time()  # OpenSSL verifies at the machine's time
AUTHORITY, ANOTHER = make_authority(TODAY), make_authority(TODAY)
SERVING, OTHER = (make_serving(AUTHORITY, HOSTS, TODAY) for _ in range(2))


ENDED = make_serving(AUTHORITY, HOSTS, TODAY - 100 * DAY)
ELSEWHERE = make_serving(AUTHORITY, ["elsewhere.svc"], TODAY)


def _without_key_usage() -> str:
    """The authority as `openssl req -x509` makes one, which Python refuses since 3.13."""
    authority = x509.load_pem_x509_certificate(AUTHORITY.certificate.encode())
    key = serialization.load_pem_private_key(AUTHORITY.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = (
        x509.CertificateBuilder()
        .subject_name(authority.subject)
        .issuer_name(authority.issuer)
        .public_key(authority.public_key())
        .serial_number(authority.serial_number)
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def existing(**texts: str) -> dict[str, Any]:
    """A Secret as cert-manager writes it."""
    held = {
        "tls.crt": SERVING.certificate,
        "tls.key": SERVING.key,
        "ca.crt": AUTHORITY.certificate,
    } | texts
    data = {name: base64.b64encode(text.encode()).decode() for name, text in held.items() if text}
    return {"metadata": {"name": "corp-tls"}, "type": "kubernetes.io/tls", "data": data}


def test_certificate_that_others_keep_is_shown_as_it_is() -> None:
    shown = read_existing(existing(), *HOSTS)
    assert (shown.certificate, shown.key, shown.authorities) == (
        SERVING.certificate,
        SERVING.key,
        AUTHORITY.certificate,
    )
    assert shown.ends_at == int(TODAY) + SERVING_DAYS * DAY


@pytest.mark.parametrize(
    "secret",
    [
        existing(**{"tls.crt": ""}),
        existing(**{"tls.key": ""}),
        existing(**{"ca.crt": ""}),
        existing(**{"tls.crt": "no certificate"}),
        existing(**{"tls.key": OTHER.key}),
        existing(**{"ca.crt": "no certificate"}),
        existing(**{"ca.crt": ANOTHER.certificate}),
        existing(**{"ca.crt": _without_key_usage()}),
        existing(**{"tls.crt": ENDED.certificate, "tls.key": ENDED.key}),
        existing(**{"tls.crt": ELSEWHERE.certificate, "tls.key": ELSEWHERE.key}),
        {**existing(), "data": None},
        {**existing(), "data": {**existing()["data"], "tls.key": "no base64"}},
    ],
)
def test_secret_of_others_that_cannot_serve_is_named_with_what_it_needs(
    secret: dict[str, Any],
) -> None:
    with pytest.raises(
        UnusableSecretError,
        match=r"Secret corp-tls needs a certificate for localhost in tls\.crt, its key in tls\.key",
    ):
        read_existing(secret, *HOSTS)
