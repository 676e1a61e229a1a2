"""Times as the API writes them, RFC 3339."""

from datetime import datetime


def seconds_between(earlier: str, later: str) -> float:
    """The seconds from one time to another, at least 0; 0 too if one of them is not a time."""
    try:
        return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
