"""The end of an agent: it waits until the checkpoints that its workers have requested are on the disk, as far as time allows."""

import time

from elastic_pytorch.agent.signals import Signals
from elastic_pytorch.log import logger
from elastic_pytorch.pod.server import PodServer

DISK_SECONDS = 600.0  # without a signal; a disk that takes longer is given up
MARGIN_SECONDS = 0.5  # kept from the grace period, for what comes after
POLL_SECONDS = 0.1


def wait_for_disk(pod_server: PodServer, signals: Signals, grace_seconds: float, disk_seconds: float = DISK_SECONDS) -> bool:
    """Waits for the flushes in progress, but never beyond the pod's grace period once a signal has begun that.

    Returns:
        Whether all is on the disk.
    """
    since = time.monotonic()
    margin = min(MARGIN_SECONDS, 0.1 * grace_seconds)
    while not pod_server.drain(POLL_SECONDS):
        deadline = since + disk_seconds if signals.received is None else signals.at + grace_seconds - margin
        if time.monotonic() >= deadline:
            logger.warning("end: the last checkpoint is not on the disk, and there is no time left")
            return False
    return True
