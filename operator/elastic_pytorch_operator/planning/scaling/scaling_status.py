"""`status.scaling`: what is known of a job's scaling, for users and for the next leader. It has two kilobytes at most."""

from types import MappingProxyType
from typing import Any

from elastic_pytorch_operator.api.times import earlier, seconds_between
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.scaling.autoscale import MIN_REST_SECONDS, Autoscale
from elastic_pytorch_operator.planning.scaling.comparison import compare, nearest
from elastic_pytorch_operator.planning.scaling.scaling import Scaling, describe_scaling
from elastic_pytorch_operator.planning.scaling.throughput import Throughput
from elastic_pytorch_operator.spec.job import Job

SAME_SECONDS = 3.0  # times are written in whole seconds, and the operator's two clocks drift


def write_scaling(job: Job, observed: Observed, known: Scaling) -> dict[str, Any]:
    """The field; empty: nothing is known."""
    found: dict[str, Any] = {}
    times = {size["workers"]: str(size["time"]) for size in (job.status.get("scaling") or {}).get("sizes") or ()}
    if message := describe_scaling(job, known):
        found["message"] = message
    if known.advice is not None:
        found["efficiency"] = f"{known.advice.efficiency:z.2f}"
    if known.sizes:
        found["sizes"] = [
            {
                "workers": size.workers,
                "samplesPerSecond": f"{size.samples_per_second:.4g}",
                "error": f"{size.error:.2g}",
                "time": _time(size.at, observed, times.get(size.workers, "")),
            }
            for size in known.sizes.values()
        ]
    if job.min_efficiency is not None and known.autoscale.replicas is not None:
        found["keptReplicas"] = known.autoscale.replicas
    return found


def read_scaling(job: Job, observed: Observed) -> Scaling:
    """What the next leader takes up: the measurements, and how many workers are kept. A try that was under way is given up."""
    status = job.status.get("scaling") or {}
    sizes = [
        Throughput(
            int(size["workers"]), float(size["samplesPerSecond"]), float(size["error"]), _moment(str(size["time"]), observed)
        )
        for size in status.get("sizes") or ()
    ]
    newest = max(sizes, key=lambda size: size.at, default=None)
    other = nearest(newest, sizes) if newest else None
    advice = compare(newest, other) if newest and other else None
    return Scaling(
        sizes=MappingProxyType({size.workers: size for size in sizes}),
        advice=advice if advice and advice.telling else None,
        told=True,
        autoscale=Autoscale(status.get("keptReplicas"), next_at=observed.now + MIN_REST_SECONDS if sizes else 0.0),
    )


def _time(moment: float, observed: Observed, old: str) -> str:
    """A moment in monotonic seconds as RFC 3339: the time that was written before, if it means the same."""
    if old and abs(_moment(old, observed) - moment) < SAME_SECONDS:
        return old
    return earlier(observed.time, observed.now - moment)


def _moment(time: str, observed: Observed) -> float:
    """A time as monotonic seconds: now, if it is not one."""
    return observed.now - seconds_between(time, observed.time) + seconds_between(observed.time, time)
