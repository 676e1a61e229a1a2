"""What the measurements of a check mean: which workers have passed, and what is wrong with the others.

A worker is suspect if its check has failed, or if it takes more than `maxSlowdownPercent` of the median of all. The lower median is taken:
of two workers, the slow one is compared to the fast one. What an agent says of its own node's matrix products concerns that node alone. A
failed or slow all-reduce makes each worker of its pair suspect.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median_low

from elastic_pytorch_operator.model.check import CheckReport
from elastic_pytorch_operator.planning.preflight.pairs import Pairs
from elastic_pytorch_operator.spec.preflight import PreflightPolicy


@dataclass(frozen=True, slots=True)
class Typical:
    """What a check typically measures; None: not known.

    Attributes:
        matmul_seconds: of one node's matrix products.
        all_reduce_seconds: of two nodes' all-reduces.
    """

    matmul_seconds: float | None = None
    all_reduce_seconds: float | None = None


NOTHING_TYPICAL = Typical()


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a check has shown.

    Attributes:
        passed: workers without a fault.
        suspects: what is wrong with the others, to follow a worker's name in a sentence.
    """

    passed: frozenset[str]
    suspects: Mapping[str, str]


def typical_of(pairs: Pairs, reports: Mapping[str, CheckReport], known: Typical) -> Typical:
    """Returns what is typical: what earlier checks have found, or else the lower median of this one."""
    together = [worker for pair in pairs if len(pair) > 1 for worker in pair]
    every = [worker for pair in pairs for worker in pair]
    return Typical(
        known.matmul_seconds or _median(reports[w].matmul_seconds for w in every if w in reports),
        known.all_reduce_seconds or _median(reports[w].all_reduce_seconds for w in together if w in reports),
    )


def judge(
    pairs: Pairs,
    reports: Mapping[str, CheckReport],
    gone: Collection[str],
    typical: Typical,
    policy: PreflightPolicy,
) -> Verdicts:
    """Judges a check that is over.

    Args:
        pairs: who was checked with whom.
        reports: of those that have reported.
        gone: workers that went away meanwhile. Nothing is said of them, nor of a partner that failed only without them.
        typical: what is typical.
        policy: how long a check may take.
    """
    passed, suspects = set(), {}
    for pair in pairs:
        for worker in pair:
            if worker in gone:
                continue
            why = _fault(reports.get(worker), typical, policy, alone=len(pair) == 1)
            if not why:
                passed.add(worker)
            elif not any(partner in gone for partner in pair):
                suspects[worker] = why
    return Verdicts(frozenset(passed), suspects)


def _fault(report: CheckReport | None, typical: Typical, policy: PreflightPolicy, *, alone: bool) -> str:
    if report is None:
        return f"has reported no result of its check after {policy.seconds} s"
    if report.error:
        return f"has failed its check: {report.error}"
    measured = [("matrix products", report.matmul_seconds, typical.matmul_seconds)]
    if not alone:
        measured.append(("all-reduces", report.all_reduce_seconds, typical.all_reduce_seconds))
    for what, took, median in measured:
        if took is not None and median and 100 * took > policy.max_slowdown_percent * median:
            return f"is slow: its {what} took {took:.3g} s, {took / median:.1f} times the median of {median:.3g} s"
    return ""


def _median(values: Iterable[float | None]) -> float | None:
    return median_low(found) if (found := [value for value in values if value is not None]) else None
