"""Times of the API (RFC 3339), and moments of the monotonic clock in seconds."""

from datetime import UTC, datetime, timedelta


def write_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def write_micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_between(earlier: str, later: str) -> float:
    """The seconds from one time to another, at least 0; 0 if one of them is not a time."""
    try:
        return max(
            0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
        )
    except (ValueError, TypeError):
        return 0.0


def earlier(time: str, seconds: float) -> str:
    """The time some seconds before another, in whole seconds; the other if there is none."""
    try:
        found = datetime.fromisoformat(time) - timedelta(seconds=seconds)
        return write_time(found.astimezone(UTC))
    except (ValueError, OverflowError):
        return time


def earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
