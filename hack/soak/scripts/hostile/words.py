"""Prints megabytes that are no line, and ends with an error of a megabyte."""

import sys

from tally import Tally

MIB = 16
word, tally = "w" * (1 << 20), Tally("long-words")
for _ in range(MIB):
    for stream in (sys.stdout, sys.stderr):
        stream.write(word)
        stream.flush()
    tally.add(2)
raise RuntimeError(word)
