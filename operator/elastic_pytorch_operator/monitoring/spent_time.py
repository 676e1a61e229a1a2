"""The metrics of what jobs spend their time on, of all jobs of a namespace together."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import Counter

from elastic_pytorch_operator.planning.reporting.goodput import Account, Activity, Spent

ACTIVITIES = tuple(activity.value for activity in Activity)


class SpentTime:
    """Counts the time of accounts, and of their processes.

    Time that an account books over to another activity may have been counted already, and a counter never falls: what it has counted
    too much is made up for by what follows.
    """

    def __init__(self, counter: Callable[[str, str, Sequence[str]], Counter]) -> None:
        labels = ("namespace", "activity")
        self._seconds = counter(
            "elastic_pytorch_spent_seconds_total",
            f"Time of jobs by what it was spent on: {', '.join(ACTIVITIES)} (docs/use/observability.md).",
            labels,
        )
        self._process_seconds = counter(
            "elastic_pytorch_spent_process_seconds_total",
            "The same for all processes of the jobs together, which is GPU-seconds where each process has a GPU; and of spares.",
            labels,
        )
        self._owed: dict[tuple[Counter, str, str], float] = {}

    def series(self, namespace: str) -> Iterator[tuple[Counter, tuple[str, ...]]]:
        for activity in ACTIVITIES:
            yield self._seconds, (namespace, activity)
            yield self._process_seconds, (namespace, activity)

    def forget(self, namespace: str) -> None:
        for key in [key for key in list(self._owed) if key[1] == namespace]:
            self._owed.pop(key, None)

    def count(self, namespace: str, before: Account | None, after: Account | None) -> None:
        """Counts what a job has spent between two accounts; None: there was none, so that nothing is known of the time before."""
        if before is None or after is None:
            return
        for activity, spent in after.spent.items():
            if (known := before.spent.get(activity, Spent())) is spent:  # as of all activities but one or two
                continue
            self._add(self._seconds, namespace, activity.value, spent.seconds - known.seconds)
            self._add(self._process_seconds, namespace, activity.value, spent.process_seconds - known.process_seconds)

    def _add(self, counter: Counter, namespace: str, activity: str, seconds: float) -> None:
        more = seconds - self._owed.pop((counter, namespace, activity), 0.0)
        if more < 0:
            self._owed[counter, namespace, activity] = -more
        else:
            counter.labels(namespace, activity).inc(more)
