"""How Grafana writes a number in the unit of its panel, and where it has the ticks of an axis."""

import math

SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
SHORT = ((1e6, "Mil"), (1e3, "K"), (1.0, ""))
SUFFIXES = {"reqps": " req/s", "ops": " ops/s", "short": ""}
NICE = (1.0, 2.0, 5.0, 10.0)


def write_value(value: float, unit: str) -> str:
    """A number in one of Grafana's units: short, s, bytes, reqps or ops."""
    if value == 0:
        return {"s": "0 s", "bytes": "0 B"}.get(unit, f"0{SUFFIXES.get(unit, '')}")
    if unit == "s" and value >= 60:
        return f"{value / 60:.3g} min"
    scales = {"s": SECONDS, "bytes": BYTES}.get(unit, SHORT)
    size, name = next(((size, name) for size, name in scales if value >= size), scales[-1])
    gap = " " if name else ""
    return f"{value / size:.3g}{gap}{name}{SUFFIXES.get(unit, '')}"


def ticks(most: float, unit: str, wanted: int = 4) -> list[float]:
    """Round numbers from 0 to at least `most`, about as many as are wanted. Bytes are round in powers of two."""
    if most <= 0:
        most = 1.0
    base = 2.0 ** (10 * math.floor(math.log2(most) / 10)) if unit == "bytes" else 1.0
    rough = most / base / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in NICE if nice * power >= rough * 0.999) * base
    return [number * step for number in range(math.ceil(most / step - 1e-9) + 1)]
