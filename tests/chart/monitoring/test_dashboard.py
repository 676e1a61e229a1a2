"""The dashboard asks for what the operator tells, and says what it shows."""

import json
import re
from typing import Any

import pytest
from elastic_pytorch_operator.monitoring.job_counts import FAILURE_KINDS, ROUND_REASONS
from elastic_pytorch_operator.monitoring.job_gauges import JOB_STATES, WORKER_STATES
from elastic_pytorch_operator.monitoring.spent_time import ACTIVITIES

from tests.chart.chart_rendering import CHART, needs_helm, only, render
from tests.chart.monitoring.promql import problems_of

DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_that_is_asked_for_is_told(expression: str) -> None:
    assert problems_of(expression) == []


@needs_helm
def test_dashboard_comes_to_grafanas_sidecar() -> None:
    found = only(render("metrics.dashboard.enabled=true"), "ConfigMap", "elastic-pytorch-operator-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["elastic-pytorch.json"]) == DASHBOARD
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("title", "series"),
    [
        ("Jobs", JOB_STATES),
        ("Workers", WORKER_STATES),
        ("Changes of groups", ROUND_REASONS),
        ("Failures of training code", FAILURE_KINDS),
        ("What processes spend time on", ACTIVITIES),
    ],
)
def test_dashboard_has_a_color_for_each_series_whose_name_is_known(title: str, series: tuple[str, ...]) -> None:
    (panel,) = [panel for panel in DASHBOARD["panels"] if panel["title"] == title]
    assert {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]} == set(series)


def test_dashboard_asks_the_chosen_source_with_variables_that_it_has() -> None:
    known = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"]))) <= known
    sources = [
        asking["datasource"]["uid"]
        for panel in DASHBOARD["panels"]
        for asking in (panel, *panel.get("targets", ()))
        if panel["type"] != "row"
    ]
    assert set(sources) == {"${datasource}"}


def test_panels_of_the_dashboard_lie_side_by_side() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24, "Grafana's grid has 24 columns"
