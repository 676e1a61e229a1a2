"""A pod's output as log lines of bounded length, with the newest state of a progress bar."""

MAX_LINE_BYTES = 1 << 16
BAR_SECONDS = 1.0  # between two states of a bar


class OutputLines:
    """Cuts the output of one pod into lines.

    A carriage return restarts its line, as in a terminal. So a progress bar is one line, with a
    state of it now and then.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._shown_at = float("-inf")  # when a bar was last shown

    def take(self, data: bytes, now: float) -> list[str]:
        """The lines that new output completes, in monotonic seconds; empty output ends the last."""
        *complete, rest = (self._rest + data).split(b"\n")
        if not data and rest:
            complete, rest = [*complete, rest], b""
        found = [_visible(line) for line in complete]
        bar, over, unfinished = rest.rpartition(b"\r")
        if over and now - self._shown_at >= BAR_SECONDS:
            self._shown_at = now
            found.append(_visible(bar))
        while len(unfinished) > MAX_LINE_BYTES:
            found.append(_visible(unfinished[:MAX_LINE_BYTES]))
            unfinished = unfinished[MAX_LINE_BYTES:]
        self._rest = unfinished
        return found


def _visible(line: bytes) -> str:
    """What a terminal shows of a restarted line."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
