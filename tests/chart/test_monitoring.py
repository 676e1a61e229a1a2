"""Alerts and the dashboard ask for what the operator tells, and each alert has its runbook."""

import json
import re
from typing import Any

import pytest
import yaml
from elastic_pytorch_operator.monitoring.metrics import FAILURE_KINDS, JOB_STATES, ROUND_REASONS, WORKER_STATES, Metrics
from elastic_pytorch_operator.monitoring.spent_time import ACTIVITIES

from tests.chart.chart_rendering import CHART, needs_helm, only, pod_of, render, template
from tests.paths import ROOT

ALERTS: list[dict[str, str]] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
RUNBOOKS = (ROOT / "docs" / "operations.md").read_text()

FAMILIES = {family.name: family for family in Metrics().families}
OTHERS = {"process_resident_memory_bytes"}  # the Prometheus client's own
FUNCTIONS = {"absent", "max", "sum", "by", "rate", "increase", "histogram_quantile", "le"}
SELECTOR = re.compile(r"([a-z_:]+)(?:\{([^}]*)\})?")
TARGET_LABELS = {"job", "pod", "namespace", "instance"}

EXPRESSIONS = [alert["expr"] for alert in ALERTS] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
]


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """The metrics that an expression asks for, each with the labels that it selects by."""
    plain = re.sub(r"\[[^]]*\]|by \([^)]*\)", "", expression)
    found = SELECTOR.findall(plain)
    return [(name, set(re.findall(r"(\w+)[=!]", inner))) for name, inner in found if name not in FUNCTIONS and len(name) > 2]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_that_is_asked_for_is_told(expression: str) -> None:
    assert expression.count("(") == expression.count(")")
    asked = selectors(expression)
    assert asked
    for name, labels in asked:
        if name in OTHERS:
            continue
        family = FAMILIES.get(name) or FAMILIES[name.removesuffix("_bucket")]
        assert ("_bucket" in name) is (family.kind == "histogram")
        assert labels <= {*family.labels, *TARGET_LABELS}, f"{name} has no such label"
        if family.kind == "counter":
            assert re.search(rf"(rate|increase)\({name}", expression), f"{name} only ever grows"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_alert_has_a_runbook(alert: dict[str, str]) -> None:
    assert set(alert) == {"alert", "expr", "for", "severity", "summary"}
    assert alert["severity"] in ("critical", "warning", "info")
    assert alert["summary"].endswith(".")
    section = RUNBOOKS.partition(f"\n### {alert['alert']}\n")[2].partition("\n### ")[0]
    assert len(section.split()) > 20, "what it means, and what to do"


def test_no_runbook_is_of_an_alert_that_is_gone() -> None:
    assert re.findall(r"^### (ElasticPyTorch\w+)$", RUNBOOKS, re.MULTILINE) == [alert["alert"] for alert in ALERTS]


@needs_helm
def test_alerts_point_to_their_runbooks() -> None:
    settings = ("metrics.prometheusRule.enabled=true", 'metrics.prometheusRule.runbook="https://wiki.example.com/epj"')
    ((group,),) = [only(render(*settings), "PrometheusRule")["spec"]["groups"]]
    assert [(rule["alert"], rule["expr"]) for rule in group["rules"]] == [(alert["alert"], alert["expr"]) for alert in ALERTS]
    assert "{{ $labels.namespace }}" in group["rules"][-1]["annotations"]["summary"]
    assert group["rules"][0]["annotations"]["runbook_url"] == "https://wiki.example.com/epj#elasticpytorchoperatorabsent"


@needs_helm
def test_alerts_have_no_link_that_leads_nowhere() -> None:
    (group,) = only(render("metrics.prometheusRule.enabled=true"), "PrometheusRule")["spec"]["groups"]
    assert {tuple(rule["annotations"]) for rule in group["rules"]} == {("summary",)}


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
