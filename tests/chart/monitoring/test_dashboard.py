"""The dashboard asks for what the operator tells, and says what it shows."""

import json
import re
from typing import Any

import pytest
from elastic_pytorch_operator.monitoring.job_counts import FAILURE_KINDS, ROUND_REASONS
from elastic_pytorch_operator.monitoring.job_gauges import JOB_STATES, WORKER_STATES
from elastic_pytorch_operator.monitoring.spent_time import ACTIVITIES

from tests.chart.chart_rendering import CHART, needs_helm, only, render
from tests.chart.monitoring.promql import FAMILIES, grouped_by, problems_of
from tests.paths import ROOT

DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_that_is_asked_for_is_told(expression: str) -> None:
    assert problems_of(expression) == []


@needs_helm
def test_dashboard_comes_to_grafanas_sidecar() -> None:
    found = only(render("metrics.dashboard.enabled=true"), "ConfigMap", "elastic-pytorch-operator-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    without_links = [{name: value for name, value in panel.items() if name != "links"} for panel in DASHBOARD["panels"]]
    assert json.loads(found["data"]["elastic-pytorch.json"]) == DASHBOARD | {"panels": without_links}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@needs_helm
def test_panels_link_to_the_runbook_where_it_can_be_read() -> None:
    url = "https://wiki.example.com/epj"
    settings = ("metrics.dashboard.enabled=true", f'metrics.prometheusRule.runbook="{url}"')
    text = only(render(*settings), "ConfigMap", "elastic-pytorch-operator-dashboard")["data"]["elastic-pytorch.json"]
    assert json.loads(text) == json.loads(json.dumps(DASHBOARD).replace("docs/operate/operations.md", url))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_panel_says_what_it_shows_and_where_to_read_more(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    ((page, _, anchor),) = [link["url"].partition("#") for link in panel["links"]]
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_legend_names_labels_that_the_series_have(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped_by(target["expr"])


def test_variables_ask_for_labels_that_there_are() -> None:
    asked = [variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    found = [re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query) for query in asked]
    assert [match.group(2) for match in found if match] == ["namespace", "job_name"]
    assert not [match for match in found if not match or match.group(2) not in FAMILIES[match.group(1)].labels]


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
