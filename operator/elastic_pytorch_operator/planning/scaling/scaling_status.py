"""`status.scaling`: what is known of a job's scaling, for users and for the next leader. It has two kilobytes at most."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from elastic_pytorch_operator.api.times import earlier, seconds_between
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.scaling.autoscale import Autoscale
from elastic_pytorch_operator.planning.scaling.comparison import Comparison
from elastic_pytorch_operator.planning.scaling.scaling import Scaling, describe_scaling
from elastic_pytorch_operator.planning.scaling.throughput import Throughput
from elastic_pytorch_operator.spec.job import Job

SAME_SECONDS = 3.0  # times are written in whole seconds, and the operator's two clocks drift


def write_scaling(job: Job, observed: Observed, known: Scaling) -> dict[str, Any]:
    """The field; empty: nothing is known."""
    found: dict[str, Any] = {}
    old = job.status.get("scaling") or {}
    times = {size["workers"]: str(size["time"]) for size in old.get("sizes") or ()}
    if message := describe_scaling(job, known):
        found["message"] = message
    if (advice := known.advice) is not None:
        found["fewer"] = {"workers": advice.fewer, "samplesPerSecond": f"{advice.before:.4g}"}
        found["more"] = {"workers": advice.more, "samplesPerSecond": f"{advice.after:.4g}"}
        found |= {"efficiency": f"{advice.efficiency:z.2f}", "margin": f"{advice.margin:.2g}"}
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
    if job.min_efficiency is not None:
        found["autoscale"] = _write_autoscale(known.autoscale, observed, old.get("autoscale") or {})
    return found


def read_scaling(job: Job, observed: Observed) -> Scaling:
    """What the leader before has written."""
    status = job.status.get("scaling") or {}
    sizes = [
        Throughput(
            int(size["workers"]), float(size["samplesPerSecond"]), float(size["error"]), _moment(str(size["time"]), observed)
        )
        for size in status.get("sizes") or ()
    ]
    return Scaling(
        sizes=MappingProxyType({size.workers: size for size in sizes}),
        advice=_read_advice(status),
        told=True,
        autoscale=_read_autoscale(status.get("autoscale") or {}, observed),
    )


def _write_autoscale(state: Autoscale, observed: Observed, old: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {} if state.replicas is None else {"replicas": state.replicas}
    if state.trying is not None:
        found |= {"trying": state.trying, "since": _time(state.began_at, observed, str(old.get("since", "")))}
    if state.next_at:
        found["restsUntil"] = _time(state.next_at, observed, str(old.get("restsUntil", "")))
    if state.change_seconds:
        found["changeSeconds"] = f"{state.change_seconds:.1f}"
    return {**found, "unchanged": state.unchanged}


def _read_autoscale(status: Mapping[str, Any], observed: Observed) -> Autoscale:
    return Autoscale(
        replicas=status.get("replicas"),
        trying=status.get("trying"),
        next_at=_moment(str(status.get("restsUntil", "")), observed),
        began_at=_moment(str(status.get("since", "")), observed),
        unchanged=int(status.get("unchanged", 0)),
        change_seconds=float(status.get("changeSeconds", 0.0)),
    )


def _read_advice(status: Mapping[str, Any]) -> Comparison | None:
    fewer, more = status.get("fewer"), status.get("more")
    if fewer is None or more is None:
        return None
    return Comparison(
        int(fewer["workers"]),
        int(more["workers"]),
        float(fewer["samplesPerSecond"]),
        float(more["samplesPerSecond"]),
        float(status["efficiency"]),
        float(status["margin"]),
    )


def _time(moment: float, observed: Observed, old: str) -> str:
    """A moment in monotonic seconds as RFC 3339: the time that was written before, if it means the same."""
    if old and abs(_moment(old, observed) - moment) < SAME_SECONDS:
        return old
    return earlier(observed.time, observed.now - moment)


def _moment(time: str, observed: Observed) -> float:
    """A time as monotonic seconds: now, if it is not one."""
    return observed.now - seconds_between(time, observed.time) + seconds_between(observed.time, time)
