"""The Secret with the authorities that agents trust, and the operator's certificate."""

import base64
import json
import logging
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.names import OPERATOR
from elastic_pytorch_operator.api.resources import SECRETS
from elastic_pytorch_operator.cluster.interface import Cluster
from elastic_pytorch_operator.tls.certificates import end_of, is_whole, make_authority, make_serving
from elastic_pytorch_operator.tls.rotation import (
    Pair,
    Shown,
    Trust,
    signing,
    unexpired,
    wants_authority,
    wants_serving,
)

logger = logging.getLogger(__name__)

STATE_KEY = "trust.json"
BUNDLE_KEY = "ca.crt"
# As cert-manager writes a Secret of the type kubernetes.io/tls.
CERTIFICATE_KEY, PRIVATE_KEY = "tls.crt", "tls.key"


class UnusableSecretError(ValueError):
    """A Secret that others keep has no certificate that the operator can show."""


def secret_name(operator: str) -> str:
    return f"{operator}-tls"


SECRET_NAME = secret_name(OPERATOR)


async def keep_trust(
    cluster: Cluster,
    namespace: str,
    hosts: Sequence[str],
    now: float,
    held: Trust | None = None,
    name: str = SECRET_NAME,
) -> Trust:
    """Makes or renews the trust, and writes the Secret, if it is time for that.

    A damaged Secret is restored from what this replica holds, or else its damaged parts are made
    again. `now` is in seconds since the epoch.
    """
    found = await cluster.get(SECRETS, namespace, name)
    known, damage = read_trust(found)
    for part in damage:
        logger.error("Secret %s/%s: %s is damaged", namespace, name, part)
    trust = renew(held if held and damage else known, hosts, now)
    wanted = write_trust(trust)
    if not wanted.items() <= (found.get("data") or {}).items():
        await cluster.replace(SECRETS, {**found, "data": wanted})
        logger.info(
            "wrote certificates",
            extra={"authorities": len(trust.authorities), "hosts": list(hosts)},
        )
    return trust


def renew(trust: Trust, hosts: Sequence[str], now: float) -> Trust:
    authorities = unexpired(trust.authorities, now)
    if wants_authority(authorities, now):
        authorities = (*authorities, make_authority(now))
    trust = replace(trust, authorities=authorities)
    signer = signing(authorities, now)
    if wants_serving(trust, signer, hosts, now):
        serving = make_serving(signer, hosts, now)
        trust = replace(trust, serving=serving, signer=signer.certificate, hosts=tuple(hosts))
    return trust


def read_trust(secret: Manifest) -> tuple[Trust, tuple[str, ...]]:
    """The trust in a Secret, and the damaged parts."""
    text = (secret.get("data") or {}).get(STATE_KEY)
    if not text:
        return Trust(), ()
    try:
        state = json.loads(base64.b64decode(text))
        authorities = [_read_pair(pair) for pair in state["authorities"]]
        signer = str(state["signer"])
        serving = _read_pair(state["serving"], signer) if state["serving"] else None
        trust = Trust(
            tuple(filter(None, authorities)), serving, signer, tuple(map(str, state["hosts"]))
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return Trust(), (STATE_KEY,)
    damage = [
        f"{STATE_KEY}: authorities[{n}]" for n, pair in enumerate(authorities) if pair is None
    ]
    if state["serving"] and serving is None:
        damage.append(f"{STATE_KEY}: serving")
    return trust, tuple(damage)


def read_existing(secret: Manifest, host: str) -> Shown:
    data = secret.get("data") or {}
    try:
        certificate, key, authorities = (
            base64.b64decode(data[name], validate=True).decode()
            for name in (CERTIFICATE_KEY, PRIVATE_KEY, BUNDLE_KEY)
        )
        shown = Shown(certificate, key, authorities, end_of(certificate))
        _shake_hands(shown, host)
    except (KeyError, TypeError, ValueError, OSError) as fault:
        raise UnusableSecretError(
            f"Secret {secret['metadata']['name']} needs a certificate for {host} in "
            f"{CERTIFICATE_KEY}, its key in {PRIVATE_KEY}, and its authorities in {BUNDLE_KEY}: "
            f"{fault!r}"
        ) from fault
    return shown


def _shake_hands(shown: Shown, host: str) -> None:
    """Does in memory what each agent does first; ssl.SSLError: no agent would connect."""
    client, server = ssl.create_default_context(cadata=shown.authorities), server_context()
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    load_certificate(shown, server)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    agent = client.wrap_bio(to_client, to_server, server_hostname=host)
    for end in (agent, server.wrap_bio(to_server, to_client, server_side=True), agent):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()


def _read_pair(state: Mapping[str, Any], signer: str = "") -> Pair | None:
    """A pair, None if it cannot be used; without a signer, it is an authority."""
    try:
        pair = Pair(str(state["certificate"]), str(state["key"]), float(state["made_at"]))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return pair if is_whole(pair, signer or pair.certificate) else None


def write_trust(trust: Trust) -> dict[str, str]:
    """Other clients of the operator read `ca.crt`."""
    data = {STATE_KEY: json.dumps(asdict(trust)), BUNDLE_KEY: trust.bundle}
    return {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}


def load_certificate(shown: Shown, context: ssl.SSLContext) -> None:
    """Raises OSError if the key is another certificate's."""
    # The library reads only files; no other user may read this folder.
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_text(shown.certificate)
        key.write_text(shown.key)
        context.load_cert_chain(certificate, key)


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # agents resume no session
    return context
