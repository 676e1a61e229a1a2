"""How long an agent waits: by what the operator, torchrun's options and the pod's grace period say."""

import os
from dataclasses import dataclass
from typing import Any

from elastic_pytorch.agent.settings import Settings
from elastic_pytorch.log import logger


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an agent waits.

    Attributes:
        monitor_seconds: from one check of the workers to the next if nothing rings.
        stop_seconds: from SIGTERM to SIGKILL of the workers.
        prepare_seconds: for workers to be ready for their first group; None: they start when it exists.
    """

    monitor_seconds: float
    stop_seconds: float
    prepare_seconds: float | None = None


def read_timeouts(settings: Settings, options: Any, monitor_seconds: float) -> Timeouts:
    """Returns how long the agent waits.

    Args:
        settings: from the operator.
        options: torchrun's.
        monitor_seconds: what torchrun makes of its `--monitor-interval`.
    """
    return Timeouts(monitor_seconds, _stop_seconds(settings, options), _prepare_seconds(settings, options))


def _prepare_seconds(settings: Settings, options: Any) -> float | None:
    """Returns how long workers may prepare; None: they do not, as also other programs than Python's scripts, which could not wait."""
    if settings.prepare_seconds is not None and not options.warm:
        logger.warning("spec.prepare is for scripts that this agent starts itself: this program starts when its group exists")
        return None
    return settings.prepare_seconds


def _stop_seconds(settings: Settings, options: Any) -> float:
    """Returns the seconds that workers have to stop: what the pod's grace period allows, or less if torchrun's option says so."""
    wanted = getattr(options, "shutdown_timeout", None)
    if wanted is None:
        wanted = os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
    return settings.stop_seconds if wanted is None else min(settings.stop_seconds, float(wanted))
