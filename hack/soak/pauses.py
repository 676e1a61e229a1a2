"""How long each job stood still by faults, and how that compares with an earlier run of the same faults. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_local.faults.plan import Act, from_json

from soak.checks.cluster import spread
from soak.verdict import Seen, pauses

MOST_TIMES = 2.0  # a hostile tenant may make the pauses of other jobs at most this many times as long
FIGURES = ("median", "90 %", "longest")


def pauses_by_job(seen: Seen) -> dict[str, tuple[float, float, float]]:
    """The median, the 90th percentile and the largest of each job's pauses, in seconds: one for each fault that it was made to."""
    found: dict[str, list[float]] = defaultdict(list)
    for _, job, seconds in pauses(seen):
        found[job].append(seconds)
    return {job: spread(found[job]) for job in sorted(found)}


@dataclass(frozen=True, slots=True)
class Compared:
    text: str
    too_long: bool


def compare(now: Mapping[str, Sequence[float]], earlier: Mapping[str, Sequence[float]]) -> list[Compared]:
    """Each figure of each job, in seconds. A job that has no pauses in one of the runs has none to compare."""
    found = list[Compared]()
    for job in (job for job in now if job in earlier):
        for figure, here, there in zip(FIGURES, now[job], earlier[job], strict=True):
            times = f"{here / there:.2f} times" if there else "not comparable with"
            text = f"{job}, {figure} of the pauses: {here:.2f} s, {times} the {there:.2f} s of before"
            too_long = here > MOST_TIMES * there
            found.append(Compared(text + (f": more than {MOST_TIMES:g} times" if too_long else ""), too_long))
    return found


def same_run(earlier: Mapping[str, Any], jobs: Sequence[str], acts: Sequence[Act]) -> bool:
    """Whether an earlier run, by its report, had the same jobs and faults, and its pauses are known."""
    return "pauses" in earlier and earlier["jobs"] == list(jobs) and from_json(earlier["acts"]) == tuple(acts)
