"""What a Grafana dashboard shows: its panels, what each asks Prometheus, and the curves that Prometheus' answers make."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Grafana's classic palette, in its order: a series without a colour of its own gets the next one.
PALETTE = ("#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0", "#37872D", "#FADE2A")
NAMED = {
    "green": "#73BF69",
    "yellow": "#FADE2A",
    "blue": "#5794F2",
    "orange": "#FF9830",
    "dark-orange": "#FA6400",
    "red": "#F2495C",
    "dark-red": "#C4162A",
    "purple": "#B877D9",
    "gray": "#808080",
    "dark-purple": "#8F3BB8",
    "dark-yellow": "#E0B400",
}
LEAST_SCRAPES = 4  # that a rate looks at


@dataclass(frozen=True, slots=True)
class Place:
    """Where a panel is, in units of Grafana's grid."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Query:
    """What a panel asks, and how it calls each series of the answer."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a dashboard.

    Attributes:
        title: what it shows.
        kind: Grafana's name of it: `row` is a headline.
        place: where it is.
        unit: Grafana's name of the unit.
        stacked: whether its curves stand upon each other.
        bars: whether it has bars instead of lines.
        fill: how opaque the area below a curve is, 0 to 1.
        queries: what it asks.
        colors: of series, by their names.
        empty: what it says when there is nothing to draw.
    """

    title: str
    kind: str
    place: Place
    unit: str = "short"
    stacked: bool = False
    bars: bool = False
    fill: float = 0.0
    queries: tuple[Query, ...] = ()
    colors: Mapping[str, str] = field(default_factory=dict)
    empty: str = "No data"


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve.

    Attributes:
        name: in the legend.
        color: as matplotlib takes it.
        values: at each moment that was asked for; NaN where there is none.
    """

    name: str
    color: str
    values: tuple[float, ...]


def read_panels(dashboard: Mapping[str, Any]) -> list[Panel]:
    """The panels of a dashboard, as Grafana imports it."""
    return [_read_panel(found) for found in dashboard["panels"]]


def _read_panel(found: Mapping[str, Any]) -> Panel:
    at = found["gridPos"]
    config = found.get("fieldConfig", {})
    defaults = config.get("defaults", {})
    custom = defaults.get("custom", {})
    return Panel(
        title=found["title"],
        kind=found["type"],
        place=Place(at["x"], at["y"], at["w"], at["h"]),
        unit=defaults.get("unit", "short"),
        stacked=custom.get("stacking", {}).get("mode") == "normal",
        bars=custom.get("drawStyle") == "bars",
        fill=custom.get("fillOpacity", 0) / 100,
        queries=tuple(Query(target["expr"], target["legendFormat"]) for target in found.get("targets", ())),
        colors=dict(filter(None, map(_read_color, config.get("overrides", ())))),
        empty=defaults.get("noValue", "No data"),
    )


def _read_color(override: Mapping[str, Any]) -> tuple[str, str] | None:
    for setting in override["properties"]:
        if override["matcher"]["id"] == "byName" and setting["id"] == "color":
            return override["matcher"]["options"], NAMED[setting["value"]["fixedColor"]]
    return None


def rate_interval_seconds(step_seconds: int, scrape_seconds: int) -> int:
    """What Grafana puts in the place of `$__rate_interval`: four scrapes, or a step and a scrape if that is longer."""
    return max(step_seconds + scrape_seconds, LEAST_SCRAPES * scrape_seconds)


def fill_in(expression: str, variables: Mapping[str, str]) -> str:
    """An expression with Grafana's variables replaced.

    Raises:
        KeyError: it has a variable that is not known.
    """
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables[found[1] or found[2]], expression)


def curves(panel: Panel, answers: Sequence[Sequence[Mapping[str, Any]]], moments: Sequence[int]) -> list[Curve]:
    """What a panel draws.

    Args:
        panel: the panel.
        answers: the `result` of each of its queries, as Prometheus' `query_range` has it.
        moments: that were asked for, in seconds; a series may lack some.
    """
    found: list[Curve] = []
    for query, answer in zip(panel.queries, answers, strict=True):
        for series in answer:
            name = _name(query.legend, series["metric"])
            known = {round(float(at)): float(value) for at, value in series["values"]}
            color = panel.colors.get(name, PALETTE[len(found) % len(PALETTE)])
            found.append(Curve(name, color, tuple(known.get(moment, math.nan) for moment in moments)))
    return [curve for curve in found if not all(map(math.isnan, curve.values))]


def _name(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend)


def stack(drawn: Sequence[Curve]) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """The lower and the upper edge of each curve, the first at the bottom; where it has no value, it has no edges."""
    edges: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    heights = [0.0] * len(drawn[0].values) if drawn else []
    for curve in drawn:
        lower = tuple(math.nan if math.isnan(value) else height for height, value in zip(heights, curve.values, strict=True))
        upper = tuple(low + value for low, value in zip(lower, curve.values, strict=True))
        edges.append((lower, upper))
        heights = [height if math.isnan(high) else high for height, high in zip(heights, upper, strict=True)]
    return edges
