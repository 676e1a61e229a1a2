"""The environment variables by which the operator configures an agent (docs/protocol.md)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

REST_SECONDS = 1.0
GRACE_MARGIN_SECONDS = 1.0  # reserved from the pod's grace period for the agent's own end


class SettingsError(ValueError):
    """The environment or the command line is not one that can be run; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The ELASTIC_PYTORCH_ variables.

    Attributes:
        operator_host: the operator's host name or address.
        operator_port: its port.
        operator_authorities: which must have signed its certificate, PEM; empty: plain HTTP is spoken.
        token_file: a file with the token that identifies this agent; empty: none is sent.
        job: the job's name.
        run_id: the job's UID: TORCHELASTIC_RUN_ID.
        grace_seconds: how long the pod has from SIGTERM to SIGKILL.
        store_port: the first port that is tried for the store of a round.
        preload: modules to import beside torch before any worker starts.
        rest_seconds: how long workers that can join another group in their process may take to notice the loss of a peer.
        checkpoint_path: the folder to watch for checkpoints; None: none.
        prepare_seconds: how long workers may prepare before they are ready to join a group; None: they start when their group exists.
        termination_log: the file whose content Kubernetes shows as the container's termination message.
    """

    operator_host: str
    operator_port: int
    operator_authorities: str
    token_file: str
    job: str
    run_id: str
    grace_seconds: float
    store_port: int
    preload: tuple[str, ...]
    termination_log: str
    rest_seconds: float = REST_SECONDS
    checkpoint_path: Path | None = None
    prepare_seconds: float | None = None

    @property
    def stop_seconds(self) -> float:
        """How long workers have from SIGTERM to SIGKILL, so that the agent still ends within the grace period."""
        return max(self.grace_seconds - GRACE_MARGIN_SECONDS, self.grace_seconds * 0.75)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Reads the environment.

    Raises:
        SettingsError: a variable is missing or malformed.
    """

    def required(name: str) -> str:
        if not environ.get(name):
            raise SettingsError(f"{name} is not set: this runs in the pods of an ElasticPyTorchJob, whose operator sets it")
        return environ[name]

    def number(name: str, default: float) -> float:
        text = environ.get(name, "") or str(default)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 10**7:  # also refuses nan
            raise SettingsError(f"{name} is {text!r}, which is not a number of at least 0")
        return value

    url = required("ELASTIC_PYTORCH_OPERATOR_URL")
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError as error:
        raise SettingsError(f"ELASTIC_PYTORCH_OPERATOR_URL is {url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"ELASTIC_PYTORCH_OPERATOR_URL is {url!r}, which is not of the form http://host:port")
    authorities = required("ELASTIC_PYTORCH_OPERATOR_AUTHORITIES") if parts.scheme == "https" else ""
    return Settings(
        operator_host=parts.hostname,
        operator_port=port,
        operator_authorities=authorities,
        token_file=environ.get("ELASTIC_PYTORCH_TOKEN_FILE", ""),
        job=environ.get("ELASTIC_PYTORCH_JOB", ""),
        run_id=required("ELASTIC_PYTORCH_JOB_UID"),
        grace_seconds=number("ELASTIC_PYTORCH_GRACE_SECONDS", 30),
        rest_seconds=number("ELASTIC_PYTORCH_REST_SECONDS", REST_SECONDS),
        store_port=int(min(number("ELASTIC_PYTORCH_STORE_PORT", 29500), 65535)),
        preload=tuple(name.strip() for name in environ.get("ELASTIC_PYTORCH_PRELOAD", "").split(",") if name.strip()),
        termination_log=environ.get("ELASTIC_PYTORCH_TERMINATION_LOG", "/dev/termination-log"),
        prepare_seconds=number("ELASTIC_PYTORCH_PREPARE_SECONDS", 0) or None,
        checkpoint_path=Path(folder) if (folder := environ.get("ELASTIC_PYTORCH_CHECKPOINT_PATH")) else None,
    )
