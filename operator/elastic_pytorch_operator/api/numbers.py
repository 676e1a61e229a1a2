"""Numbers in texts that anyone may write: counts in labels and annotations, and Kubernetes quantities. Pure.

A label or an annotation may hold any text. `str.isdigit` accepts digits that `int` refuses, such as `²`, and `int` refuses more than 4,300
digits, so nothing else reads a number from such a text.
"""

import math
import re

MAX_COUNT_DIGITS = 9  # more than any count that the operator writes; it fits into 32 bits
# Quantities are those of apimachinery's `resource.Quantity`.
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)([numkMGTPE]?|[KMGTPE]i)")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_UNITS |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)}


def parse_count(text: object) -> int | None:
    """A whole number that is not negative; None if the text is not one that the operator itself would write."""
    if isinstance(text, str) and len(text) <= MAX_COUNT_DIGITS and text.isascii() and text.isdecimal():
        return int(text)
    return None


def parse_quantity(text: object) -> float | None:
    """A quantity, such as `500m` or `2Gi`, in its base unit; None if it is not one, or too large for a float."""
    found = _QUANTITY.fullmatch(str(text))
    amount = float(found[1]) * _UNITS[found[2]] if found else math.inf
    return amount if math.isfinite(amount) else None
