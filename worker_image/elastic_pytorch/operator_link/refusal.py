"""What the operator answers when it refuses a request."""

import contextlib
import json
import math
from email.message import Message

MAX_RETRY_AFTER_SECONDS = 30.0


class RefusedError(OSError):
    """The operator answered with another status than 200."""

    def __init__(self, status: int, reason: str, retry_after: float | None) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.retry_after = retry_after  # seconds; None: not given


def reason_of(answer: bytes, reason: str) -> str:
    """Why the operator refuses, safe to log: what the answer's body says, or else the reason in its head."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return ascii(str(json.loads(answer)["error"])[:500])
    return ascii(reason[:100])


def retry_after(headers: Message) -> float | None:
    """The seconds for which the operator refuses further requests, by the head of its answer; None: not given."""
    return pause_seconds(headers.get("Retry-After"))


def pause_seconds(value: object) -> float | None:
    """How long to wait, within limits; None: the value is no number."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else None
