"""A CI job that signs by its identity, with stand-ins of GitHub's tokens and of Fulcio.

They check only that the job's secret and its token come back, and there is no transparency log.
"""

import base64
import contextlib
import json
import secrets
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ISSUER = "https://token.actions.githubusercontent.com"
ISSUER_EXTENSION = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
# Without a log, a certificate has to be valid when the signature is verified.
VALIDITY = timedelta(hours=6)
BEGINNING = {"start": "2020-01-01T00:00:00Z"}


class Authority:
    """Certifies keys for one identity."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        self.root = self._certificate(
            self._name,
            self._key.public_key(),
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(certificates=True), True),
        )

    def certify(self, public_key: str) -> x509.Certificate:
        """Returns a certificate for a public key in PEM."""
        key = serialization.load_pem_public_key(public_key.encode())
        assert isinstance(key, ec.EllipticCurvePublicKey)
        issuer = b"\x0c" + bytes([len(ISSUER)]) + ISSUER.encode()  # a UTF8String in DER
        return self._certificate(
            x509.Name([]),
            key,
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(self._identity)]), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (_usage(certificates=False), True),
            (x509.UnrecognizedExtension(ISSUER_EXTENSION, issuer), False),
        )

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *extensions: tuple[x509.ExtensionType, bool],
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            self._name, subject, key, x509.random_serial_number(), now - VALIDITY, now + VALIDITY
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _usage(*, certificates: bool) -> x509.KeyUsage:
    unused = (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "crl_sign",
    )
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        encipher_only=False,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )


@contextlib.contextmanager
def job_with_identity(identity: str, folder: Path) -> Iterator[dict[str, str]]:
    """The environment with which cosign signs and verifies; the folder gets what it reads."""
    authority, secret = Authority(identity), secrets.token_hex()
    claims = json.dumps({"iss": ISSUER, "sub": identity, "aud": "sigstore"}).encode()
    token = ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode()
        for part in (b"{}", claims, b"unsigned")
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(f"bearer {secret}", {"value": token})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            certificate = authority.certify(request["publicKeyRequest"]["publicKey"]["content"])
            chain = [certificate.public_bytes(serialization.Encoding.PEM).decode()]
            self._answer(
                f"Bearer {token}",
                {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}},
            )

        def _answer(self, authorization: str, content: dict[str, Any]) -> None:
            self.send_response(200 if self.headers["Authorization"] == authorization else 401)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    root = base64.b64encode(authority.root.public_bytes(serialization.Encoding.DER)).decode()
    services = {"url": url, "majorApiVersion": 1, "validFor": BEGINNING, "operator": "a test"}
    authorities = {
        "uri": url,
        "certChain": {"certificates": [{"rawBytes": root}]},
        "validFor": BEGINNING,
    }
    documents = {
        "COSIGN_SIGNING_CONFIG": {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": [services],
        },
        "COSIGN_TRUSTED_ROOT": {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "certificateAuthorities": [authorities],
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    try:
        yield {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{url}/token?version=1",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": secret,
            **{name: str(folder / name) for name in documents},
        }
    finally:
        server.shutdown()
        server.server_close()
