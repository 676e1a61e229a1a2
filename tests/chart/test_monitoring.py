"""Prometheus finds the operator, and the dashboard asks for what it tells."""

import json
import re
from typing import Any

import pytest
from elastic_pytorch_operator.monitoring.job_counts import FAILURE_KINDS, ROUND_REASONS
from elastic_pytorch_operator.monitoring.job_gauges import JOB_STATES, WORKER_STATES
from elastic_pytorch_operator.monitoring.spent_time import ACTIVITIES

from tests.chart.chart_rendering import CHART, needs_helm, only, pod_of, render, template
from tests.chart.promql import problems_of

DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_that_is_asked_for_is_told(expression: str) -> None:
    assert problems_of(expression) == []


@needs_helm
@pytest.mark.parametrize(("kind", "value"), [("ServiceMonitor", "serviceMonitor"), ("PodMonitor", "podMonitor")])
def test_prometheus_finds_every_replica(kind: str, value: str) -> None:
    objects = render(f"metrics.{value}.enabled=true")
    monitor = only(objects, kind)["spec"]
    (endpoint,) = monitor.get("endpoints") or monitor["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True, "the label namespace is the job's"
    selector = monitor["selector"]["matchLabels"]
    pod = pod_of(objects)
    (container,) = pod["spec"]["containers"]
    assert "metrics" in {port["name"] for port in container["ports"]}
    if kind == "PodMonitor":
        assert selector.items() <= pod["metadata"]["labels"].items()
        return
    chosen = [o for o in objects if o["kind"] == "Service" and selector.items() <= o["metadata"]["labels"].items()]
    assert [service["metadata"]["name"] for service in chosen] == ["elastic-pytorch-operator-metrics"], (
        "not the agents' Service"
    )
    assert chosen[0]["spec"]["selector"].items() <= pod["metadata"]["labels"].items(), "those that stand by, too"


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


@needs_helm
def test_being_scraped_twice_is_refused() -> None:
    refused = template("metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true")
    assert refused.returncode
    assert "counted twice" in refused.stderr
