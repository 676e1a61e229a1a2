"""Credentials that obstore does not find: AWS' file, and servers without TLS.

obstore reads the environment, tokens of a service account (IRSA, EKS Pod Identity, Workload
Identity) and the metadata services. Standard library only.
"""

import configparser
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

REREAD = timedelta(minutes=5)  # a mounted Secret may be renewed

# With one of these, credentials are found before any file, as the SDKs do.
_BEFORE_FILES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def options_for(scheme: str) -> dict[str, Any]:
    """Returns a store's options, beside those that the library reads from the environment."""
    if scheme != "s3":
        return {}
    options: dict[str, Any] = {}
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    if endpoint := next(filter(None, map(os.environ.get, names)), None):
        options["endpoint"] = endpoint
    # The user's choice: a server in the cluster usually has no certificate.
    if endpoint and endpoint.startswith("http://"):
        options["client_options"] = {"allow_http": True}
    path = Path(
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    )
    if not any(os.environ.get(name) for name in _BEFORE_FILES) and path.is_file():
        options["credential_provider"] = from_file(path, os.environ.get("AWS_PROFILE") or "default")
    return options


def from_file(path: Path, profile: str) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        parser = configparser.RawConfigParser()
        parser.read(path)
        try:
            found = parser[profile]
            key, secret = found["aws_access_key_id"], found["aws_secret_access_key"]
        except KeyError as error:
            raise ValueError(
                f"missing credentials: {path} has no {error} for the profile {profile}"
            ) from None
        return {
            "access_key_id": key,
            "secret_access_key": secret,
            "token": found.get("aws_session_token"),
            "expires_at": datetime.now(timezone.utc) + REREAD,
        }

    return read
