"""What a long message says, in one line."""

import re

_TRACEBACK = "Traceback (most recent call last):"
_SCHEDULER = re.compile(r"[.,] (?:no new claims to deallocate|preemption: ).*$", re.DOTALL)


def first_line(message: str) -> str:
    """The first line of a message, with the exception instead of its traceback, and what the scheduler says once only."""
    head, found, trace = message.partition(_TRACEBACK)
    if found:
        last = [line.strip() for line in trace.splitlines() if line.strip()][-1:]
        return f"{head.strip()} {last[0] if last else 'an exception'}".strip()
    return _SCHEDULER.sub("", message.strip().split("\n")[0]).rstrip()
