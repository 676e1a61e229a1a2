"""Kubernetes quantities, as apimachinery's `resource.Quantity` reads them. Pure."""

import re

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)([numkMGTPE]?|[KMGTPE]i)")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_UNITS |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)}


def parse_quantity(text: object) -> float | None:
    """A quantity, such as `500m` or `2Gi`, in its base unit; None if it is not one."""
    found = _QUANTITY.fullmatch(str(text))
    return float(found[1]) * _UNITS[found[2]] if found else None
