"""How many examples and seeds random tests try: all in `make test`, a fifth in `make unit` (`--hypothesis-profile unit`)."""

from hypothesis import settings

ALL, UNIT = 100, 20  # of a hundred


def examples(count: int) -> int:
    """Returns `count`, or the share of it that the chosen profile tries, at least 1."""
    return max(1, count * settings.default.max_examples // ALL)
