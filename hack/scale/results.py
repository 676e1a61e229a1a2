"""The result of a run, its file, and the tables of docs/evidence/scale.md."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from measure import markdown
from measure.markdown import NOTHING

BEGIN = "<!-- figures: written by `make scale ARGS=--docs` -->\n"
END = "<!-- end of figures -->\n"


@dataclass(slots=True)
class Phase:
    """A part of a run; requests go to the API server, per second by method."""

    seconds: float
    leader_cores: float | None = None
    standby_cores: float | None = None
    leader_mib: float | None = None
    standby_mib: float | None = None
    operator_requests: dict[str, float] = field(default_factory=dict)
    agents: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """A run; times are in seconds, and spreads are median, 95th percentile and worst.

    Attributes:
        times: from the first job's creation until all pods were created, bound, running.
        spreads: `first_round` and `whole` from the first job's creation, `loss` from a pod's
            deletion, `takeover` from the leader's end until all agents of a job were answered,
            `takeover_loss` of pods that were lost meanwhile.
        operator_ends: ends of the operator's containers before the program killed one.
        falsely_lost: deleted pods that the program did not delete.
    """

    jobs: int
    workers: int
    when: str
    operator: dict[str, Any] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    spreads: dict[str, Sequence[float] | None] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    operator_ends: int | None = None
    falsely_lost: int | None = None
    error: str = ""


def write(folder: Path, result: Result) -> Path:
    path = folder / f"{result.jobs}x{result.workers}.json"
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")
    return path


def read(text: str) -> Result:
    entry: dict[str, Any] = json.loads(text)
    phases = {name: Phase(**phase) for name, phase in entry["phases"].items()}
    return Result(**entry | {"phases": phases})


def read_all(folder: Path) -> list[Result]:
    found = [read(path.read_text()) for path in folder.glob("*x*.json")]
    return sorted(found, key=lambda result: (result.jobs == 1, result.jobs * result.workers))


def tables(results: Sequence[Result]) -> str:
    columns = [_column(result) for result in results]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    head = [f"{result.jobs} x {result.workers}" for result in results]
    return markdown.table(["jobs x workers", *head], rows)


def _column(result: Result) -> dict[str, str]:
    times, operator, quiet = result.times, result.operator, _phase(result, "quiet")
    limits = operator.get("resources", {}).get("limits", {})
    leases = ", ".join(option.partition("=")[2] for option in operator.get("leases", ()))
    usage = {
        f"{who}, {phase}: {unit}": _number(
            getattr(_phase(result, phase), f"{who}_{unit.lower()}"), digits
        )
        for who, phase in (("leader", "create"), ("leader", "quiet"), ("standby", "quiet"))
        for unit, digits in (("cores", 2), ("MiB", 0))
    }
    requests = ", ".join(f"{name} {rate:g}" for name, rate in quiet.operator_requests.items())
    waits = "{heartbeat_seconds_median:.3f}, {heartbeat_seconds_worst:.2f}"
    return {
        "operator's memory limit": limits.get("memory", NOTHING),
        "its Lease, deadline and pause, s": leases or NOTHING,
        "all pods created, s": _number(times.get("created")),
        "created a second": _number(times.get("created_per_second"), digits=0),
        "all pods bound, s": _number(times.get("bound")),
        "first round, s": _spread(result, "first_round"),
        "all workers in the group, s": _spread(result, "whole"),
        "lost pod to round, s": _spread(result, "loss"),
        "leader killed until all agents are answered, s": _spread(result, "takeover"),
        "pod lost meanwhile to round, s": _spread(result, "takeover_loss"),
        "operator's containers ended": _number(result.operator_ends, digits=0),
        "falsely lost": _number(result.falsely_lost, digits=0),
        **usage,
        "the operator's requests, quiet, 1/s": requests or NOTHING,
        "heartbeats, 1/s": _number(quiet.agents.get("heartbeats_per_second"), digits=0),
        "heartbeat's answer, median and worst, s": (
            waits.format(**quiet.agents) if quiet.agents else NOTHING
        ),
    }


def page(text: str, results: Sequence[Result]) -> str:
    return markdown.page(text, BEGIN, END, f"\n{tables(results)}\n")


def _phase(result: Result, name: str) -> Phase:
    return result.phases.get(name, Phase(0.0))


def _number(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _spread(result: Result, name: str) -> str:
    found = result.spreads.get(name)
    return "{:.2f}, {:.2f}, {:.2f}".format(*found) if found else NOTHING
