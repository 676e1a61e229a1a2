"""Follows jobs for any time: a watch that ends or breaks is opened again."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from elastic_pytorch_client.cluster import WATCH_SECONDS, Cluster, Object
from elastic_pytorch_client.errors import EpjError, JobFailed, NoSuchJob, TimedOut, Unreachable
from elastic_pytorch_client.reading.job_view import JobView, view_job

PAUSE_SECONDS = 0.2  # between two watches, as a server may end each at once
RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Clock:
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def follow_job(
    cluster: Cluster,
    namespace: str,
    name: str,
    *,
    timeout_seconds: float | None = None,
    clock: Clock | None = None,
) -> Iterator[JobView]:
    """A job now, and after each change, until its deletion or the end of the time.

    Raises:
        NoSuchJob: there is none now.
        NotAllowed: the user may not read it.
        Unreachable: the API server does not answer at first; later, it is asked again.
    """
    clock = clock or Clock()
    until = None if timeout_seconds is None else clock.monotonic() + timeout_seconds
    manifest = cluster.get_job(namespace, name)
    uid, version = manifest["metadata"].get("uid"), _version(manifest)
    yield view_job(manifest)
    wait = RETRY_SECONDS
    while (seconds := _seconds_for_a_watch(until, clock)) > 0:
        try:
            for change, found in cluster.watch_jobs(namespace, name, seconds=seconds):
                wait = RETRY_SECONDS
                if change == "DELETED" or found["metadata"].get("uid") != uid:
                    return
                if _version(found) != version:
                    version = _version(found)
                    yield view_job(found)
                if until is not None and clock.monotonic() >= until:
                    return
            # The next watch would not report a deletion between two watches.
            cluster.get_job(namespace, name)
            clock.sleep(PAUSE_SECONDS)
        except NoSuchJob:
            return
        except Unreachable:
            clock.sleep(wait)
            wait = min(MAX_RETRY_SECONDS, 2 * wait)


def until_ended(jobs: Iterator[JobView]) -> Iterator[JobView]:
    for job in jobs:
        yield job
        if job.ended:
            return


def trains_whole(job: JobView) -> bool:
    """Whether a group of the size in the newest spec trains."""
    return job.seen and job.at_wanted_size


def wait_for_job(
    cluster: Cluster,
    namespace: str,
    name: str,
    fulfilled: Callable[[JobView], bool],
    what: str,
    *,
    timeout_seconds: float | None = None,
    clock: Clock | None = None,
) -> JobView:
    """Waits until a job fulfils something, with `what` as a clause.

    Raises:
        JobFailed: it has ended instead, or is gone.
        TimedOut: it took too long.
    """
    for job in follow_job(cluster, namespace, name, timeout_seconds=timeout_seconds, clock=clock):
        if fulfilled(job):
            return job
        if job.ended:
            raise JobFailed(f"{name} has ended ({job.state}) before {what}")
    try:
        cluster.get_job(namespace, name)
    except NoSuchJob:
        raise JobFailed(f"{name} has been deleted before {what}") from None
    except EpjError:
        pass  # an API server that does not answer says nothing about the job
    passed = f"{timeout_seconds or 0:.0f} s have passed before {what}"
    raise TimedOut(f"{passed}; `kubectl epj why {name}` says why")


def _seconds_for_a_watch(until: float | None, clock: Clock) -> int:
    if until is None:
        return WATCH_SECONDS
    left = until - clock.monotonic()
    return 0 if left <= 0 else max(1, round(min(WATCH_SECONDS, left)))


def _version(manifest: Object) -> str:
    return str(manifest["metadata"].get("resourceVersion", ""))
