"""The operator's settings for an agent (docs/internals/protocol.md), and its timeouts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from elastic_pytorch.log import logger
from elastic_pytorch.pod.group_variables import UNIT_REPLICAS
from elastic_pytorch.pod.messages import LOCAL_SOCKET

REST_SECONDS = 1.0
GRACE_MARGIN_SECONDS = 1.0  # of the pod's grace period, for the agent's own end


class SettingsError(ValueError):
    """An environment or a command line that cannot be run; the message says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    operator_host: str
    operator_port: int
    operator_authorities: str  # PEM; empty: plain HTTP
    token_file: str  # empty: no token is sent

    run_id: str  # the job's UID: TORCHELASTIC_RUN_ID
    grace_seconds: float
    store_port: int  # the first that is tried for the store of a round
    preload: tuple[str, ...]  # modules to import with torch before any worker starts
    # For workers that can join another group in their process to notice a lost peer.
    rest_seconds: float
    checkpoint_path: str  # empty: none is watched
    # For workers to be ready to join a group; None: they start when it exists.
    prepare_seconds: float | None
    unit_replicas: int  # pods

    @property
    def stop_seconds(self) -> float:
        """From SIGTERM to SIGKILL of the workers, with time left for the agent's own end."""
        return max(self.grace_seconds - GRACE_MARGIN_SECONDS, self.grace_seconds * 0.75)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    def required(name: str) -> str:
        if not environ.get(name):
            raise SettingsError(
                f"{name} is not set: this runs in the pods of an ElasticPyTorchJob, "
                "whose operator sets it"
            )
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

    def count(name: str) -> int:
        text = environ.get(name) or "1"
        if not text.isdecimal() or not int(text):
            raise SettingsError(f"{name} is {text!r}, which is not a whole number of at least 1")
        return int(text)

    url = required("ELASTIC_PYTORCH_OPERATOR_URL")
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError as error:
        raise SettingsError(f"ELASTIC_PYTORCH_OPERATOR_URL is {url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"ELASTIC_PYTORCH_OPERATOR_URL is {url!r}, which is not of the form http://host:port"
        )
    authorities = (
        required("ELASTIC_PYTORCH_OPERATOR_AUTHORITIES") if parts.scheme == "https" else ""
    )
    return Settings(
        operator_host=parts.hostname,
        operator_port=port,
        operator_authorities=authorities,
        token_file=environ.get("ELASTIC_PYTORCH_TOKEN_FILE", ""),
        run_id=required("ELASTIC_PYTORCH_JOB_UID"),
        grace_seconds=number("ELASTIC_PYTORCH_GRACE_SECONDS", 30),
        rest_seconds=number("ELASTIC_PYTORCH_REST_SECONDS", REST_SECONDS),
        store_port=int(min(number("ELASTIC_PYTORCH_STORE_PORT", 29500), 65535)),
        preload=tuple(
            name.strip()
            for name in environ.get("ELASTIC_PYTORCH_PRELOAD", "").split(",")
            if name.strip()
        ),
        prepare_seconds=number("ELASTIC_PYTORCH_PREPARE_SECONDS", 0) or None,
        unit_replicas=count(UNIT_REPLICAS),
        checkpoint_path=environ.get("ELASTIC_PYTORCH_CHECKPOINT_PATH", ""),
    )


@dataclass(frozen=True, slots=True)
class Timeouts:
    monitor_seconds: float  # the longest time between two checks of the workers
    stop_seconds: float  # from SIGTERM to SIGKILL of the workers
    prepare_seconds: float | None


def read_timeouts(settings: Settings, options: Any, monitor_seconds: float) -> Timeouts:
    """Torchrun's option can only shorten the time to stop."""
    stop_seconds = settings.stop_seconds
    if options.shutdown_timeout is not None:
        stop_seconds = min(stop_seconds, options.shutdown_timeout)
    return Timeouts(monitor_seconds, stop_seconds, _prepare_seconds(settings, options))


def _prepare_seconds(settings: Settings, options: Any) -> float | None:
    if settings.prepare_seconds is None:
        return None
    if not options.warm:
        why = "is for scripts that this agent starts itself"
    elif not os.environ.get(LOCAL_SOCKET):
        why = "needs the pod's local server"
    else:
        return settings.prepare_seconds
    logger.warning("spec.prepare %s: this program starts when its group exists", why)
    return None
