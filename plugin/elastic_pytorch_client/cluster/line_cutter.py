"""What a server streams, cut into lines: bounded, however long its lines are."""

MAX_LINE_BYTES = 8 << 20  # more than any object of the API server has
KEPT_BYTES = 1 << 20  # of each end of a longer line: its time is at its begin, and the newest output at its end


class LineCutter:
    """Cuts a stream into lines. Of a line that is too long, the middle is left out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> list[str]:
        """Returns the lines that are complete with some more of the stream."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self.take_rest())
        self._add(rest)
        return lines

    def take_rest(self) -> str:
        """Returns the line that has no end yet."""
        line = self._rest.decode(errors="replace")
        self._rest.clear()
        return line

    def _add(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) > MAX_LINE_BYTES:
            del self._rest[KEPT_BYTES:-KEPT_BYTES]
