"""The agent's own log, on stderr because stdout belongs to the script."""

import logging
import sys
import time

logger = logging.getLogger("elastic_pytorch.agent")


class _Formatter(logging.Formatter):
    """`elastic_pytorch.agent 2026-11-21T10:00:00.123Z INFO text`, in UTC."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    converter = staticmethod(time.gmtime)


def start_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(name)s %(asctime)s %(levelname)s %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False  # the root logger is the script's


def milliseconds(since: float) -> str:
    """The time from a `time.monotonic()` value until now, as `12 ms`."""
    return f"{(time.monotonic() - since) * 1000:.0f} ms"
