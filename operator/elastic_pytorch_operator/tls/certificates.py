"""Makes certificates; the only module that knows the library for it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from elastic_pytorch_operator.tls.rotation import AUTHORITY_DAYS, SERVING_DAYS, Pair

# Agents' clocks may be far behind.
BACKDATED = timedelta(days=30)
AUTHORITY_NAME = "elastic-pytorch-operator"


def make_authority(now: float) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{AUTHORITY_NAME} {datetime.fromtimestamp(now, UTC):%Y-%m-%d}")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(key, name, now, AUTHORITY_DAYS)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key, now)


def make_serving(authority: Pair, hosts: Sequence[str], now: float) -> Pair:
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signing_key = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    builder = (
        _builder(key, _name(AUTHORITY_NAME), now, SERVING_DAYS)
        .issuer_name(signer.subject)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
    )
    return _pair(builder.sign(signing_key, hashes.SHA256()), key, now)


def is_whole(pair: Pair, signer: str) -> bool:
    """Whether a pair can be read, and has its signer and its time."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(signer.encode()))
        key = serialization.load_pem_private_key(pair.key.encode(), None)
        begins = (certificate.not_valid_before_utc + BACKDATED).timestamp()
        return (
            isinstance(key, ec.EllipticCurvePrivateKey)
            and key.public_key() == certificate.public_key()
            and abs(begins - pair.made_at) <= 1  # a certificate's times are in whole seconds
        )
    # Anyone may have written it, and the library has many exceptions.
    except Exception:
        return False


def end_of(certificate: str) -> float:
    """When a certificate ends, seconds since the epoch; ValueError: it is none."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()


def _builder(
    key: ec.EllipticCurvePrivateKey, name: x509.Name, now: float, days: int
) -> x509.CertificateBuilder:
    begins = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - BACKDATED)
        .not_valid_after(begins + timedelta(days=days))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, now: float) -> Pair:
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(), encoded.decode(), now
    )
