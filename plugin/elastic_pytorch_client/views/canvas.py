"""A drawing of dots in text: each character is a Braille cell of 2 by 4 dots."""

import itertools
from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
BLANK = 0x2800


class Canvas:
    """Dots, the origin at the lower left.

    Args:
        width: in characters; twice as many dots.
        height: in lines; four times as many dots.
    """

    def __init__(self, width: int, height: int) -> None:
        self.dots_wide, self.dots_high = 2 * width, 4 * height
        self._cells = [[0] * width for _ in range(height)]

    def dot(self, x: int, y: int) -> None:
        """Sets a dot; one outside is left out."""
        if 0 <= x < self.dots_wide and 0 <= y < self.dots_high:
            down = self.dots_high - 1 - y
            self._cells[down // 4][x // 2] |= _DOTS[down % 4][x % 2]

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """A straight line from one dot to another."""
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(count + 1):
            self.dot(round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count))

    def curve(self, points: Sequence[tuple[float, float]], *, steps: bool = False) -> None:
        """A curve through points whose coordinates are from 0 to 1; in stairs if `steps`."""
        places = [(round(x * (self.dots_wide - 1)), round(y * (self.dots_high - 1))) for x, y in points]
        for x, y in places[:1]:
            self.dot(x, y)
        for (x0, y0), (x1, y1) in itertools.pairwise(places):
            if steps:
                self.line(x0, y0, x1, y0)
                self.line(x1, y0, x1, y1)
            else:
                self.line(x0, y0, x1, y1)

    def lines(self) -> list[str]:
        """The drawing, from the top."""
        return ["".join(chr(BLANK + cell) for cell in row) for row in self._cells]
