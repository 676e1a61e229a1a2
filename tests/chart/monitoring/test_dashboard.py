"""The dashboard asks for what the operator tells, and says what it shows."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from elastic_pytorch_operator.monitoring.job_counts import ACTIVITIES, FAILURE_KINDS, ROUND_REASONS
from elastic_pytorch_operator.monitoring.job_gauges import JOB_STATES, WORKER_STATES

from tests.chart.chart_rendering import CHART, needs_helm, only, render
from tests.chart.monitoring.promql import FAMILIES, grouped_by, problems_of
from tests.faults import assert_none
from tests.paths import ROOT

DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_every_metric_that_is_asked_for_is_told() -> None:
    assert_none(
        f"{expression}: {fault}" for expression in EXPRESSIONS for fault in problems_of(expression)
    )


@needs_helm
def test_dashboard_comes_to_grafanas_sidecar() -> None:
    found = only(
        render("metrics.dashboard.enabled=true"), "ConfigMap", "elastic-pytorch-operator-dashboard"
    )
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    without_links = [
        {name: value for name, value in panel.items() if name != "links"}
        for panel in DASHBOARD["panels"]
    ]
    assert json.loads(found["data"]["elastic-pytorch.json"]) == DASHBOARD | {
        "panels": without_links
    }
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@needs_helm
def test_panels_link_to_the_runbook_where_it_can_be_read() -> None:
    url = "https://wiki.example.com/epj"
    settings = ("metrics.dashboard.enabled=true", f'metrics.prometheusRule.runbook="{url}"')
    text = only(render(*settings), "ConfigMap", "elastic-pytorch-operator-dashboard")["data"][
        "elastic-pytorch.json"
    ]
    assert json.loads(text) == json.loads(
        json.dumps(DASHBOARD).replace("docs/operate/operations.md", url)
    )


def faults_of(panel: dict[str, Any]) -> Iterator[str]:
    if not panel["description"].endswith("."):
        yield f"its description is no sentence: {panel['description']}"
    urls = [link["url"] for link in panel["links"]]
    if len(urls) != 1 or urls[0].partition("#")[2] not in anchors(urls[0].partition("#")[0]):
        yield f"its one link does not lead to a heading: {urls}"
    for target in panel["targets"]:
        for label in sorted(
            set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - grouped_by(target["expr"])
        ):
            yield f"its legend names {label}, which {target['expr']} does not have"


@cache
def anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    return {heading.lower().replace(" ", "-") for heading in headings}


def test_panels_say_what_they_show_and_where_to_read_more_with_labels_that_the_series_have() -> (
    None
):
    assert_none(f"{panel['title']}: {fault}" for panel in PANELS for fault in faults_of(panel))


def test_variables_ask_for_labels_that_there_are() -> None:
    asked = [
        variable["query"]
        for variable in DASHBOARD["templating"]["list"]
        if variable["type"] == "query"
    ]
    found = [re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query) for query in asked]
    assert [match.group(2) for match in found if match] == ["namespace", "job_name"]
    assert not [
        match
        for match in found
        if not match or match.group(2) not in FAMILIES[match.group(1)].labels
    ]


def test_dashboard_has_a_color_for_each_series_whose_name_is_known() -> None:
    panels = {panel["title"]: panel for panel in PANELS}
    known = {
        "Jobs": JOB_STATES,
        "Workers": WORKER_STATES,
        "Changes of groups": ROUND_REASONS,
        "Failures of training code": FAILURE_KINDS,
        "What processes spend time on": ACTIVITIES,
    }
    colored = {
        title: {
            override["matcher"]["options"] for override in panels[title]["fieldConfig"]["overrides"]
        }
        for title in known
    }
    assert_none(
        f"{title}: {sorted(colored[title] ^ {*series})}"
        for title, series in known.items()
        if colored[title] != {*series}
    )


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
