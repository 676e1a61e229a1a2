"""The Grafana dashboard: what jobs live through, and how the operator fares. Rows of panels, told in Python and written as JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WIDTH = 24  # of Grafana's grid
HEIGHT = 8
JOB = 'name="elasticpytorchjob"'
CONTROLLER = 'controller="elasticpytorchjob"'
CHOSEN = 'namespace=~"$namespace"'
OURS = 'job=~".*elastic-pytorch.*"'  # other programs have metrics of the same names
GOOD, BAD, COMING, GOING, DONE, IDLE = "green", "red", "yellow", "orange", "blue", "gray"  # names of Grafana's
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    Attributes:
        title: what it shows.
        queries: PromQL, by the legend of its series.
        about: what to read out of it.
        unit: Grafana's name of the unit.
        kind: Grafana's name of the panel.
        stacked: whether the series add up to something.
        events: whether it counts what happens now and then: bars, and no series for what has not happened.
        colors: of series whose names say whether they are good news.
    """

    title: str
    queries: dict[str, str]
    about: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False
    events: bool = False
    colors: Mapping[str, str] = field(default_factory=dict)


ROWS: dict[str, list[Panel]] = {
    "What jobs live through": [
        Panel(
            "Jobs",
            {"{{state}}": f"sum by (state) (max by (namespace, state) (elastic_pytorch_jobs{{{CHOSEN}}}))"},
            "By state; only the leader exports them.",
            stacked=True,
            colors={
                "Pending": COMING,
                "Running": GOOD,
                "Resizing": GOING,
                "Suspending": GOING,
                "Suspended": IDLE,
                "Complete": DONE,
                "Failed": BAD,
            },
        ),
        Panel(
            "Workers",
            {"{{state}}": f"sum by (state) (max by (namespace, state) (elastic_pytorch_workers{{{CHOSEN}}}))"},
            "Of jobs that have not ended. Lost workers are replaced; their pods are kept for their logs. Many workers that are starting "
            "mean that nodes are full or that images are being pulled.",
            stacked=True,
            colors={
                "Starting": COMING,
                "Ready": IDLE,
                "Running": GOOD,
                "Silent": "yellow",
                "Leaving": GOING,
                "Succeeded": DONE,
                "Lost": BAD,
            },
        ),
        Panel(
            "Changes of groups",
            {
                "{{reason}}": f"sum by (reason) (increase(elastic_pytorch_rounds_declared_total{{{CHOSEN}}}[$__rate_interval])) > 0"
            },
            "The reasons of new rounds. WorkerLost comes from the cluster, WorkerFailed from the code; WorkerJoined follows both.",
            stacked=True,
            events=True,
            colors={
                "FirstRound": DONE,
                "WorkerJoined": GOOD,
                "WorkerFailed": BAD,
                "WorkerLost": "purple",
                "WorkerLeaving": GOING,
                "ScaledDown": COMING,
                "BelowMinimum": "dark-red",
                "ProgressStalled": "dark-orange",
                "JobSuspended": IDLE,
                "GroupRestarted": "dark-purple",
                "ProcessesDiffer": "dark-yellow",
            },
        ),
        Panel(
            "What a change costs",
            {
                "median": "histogram_quantile(0.5, sum by (le) (rate(elastic_pytorch_recovery_seconds_bucket[$__rate_interval])))",
                "90th percentile": "histogram_quantile(0.9, sum by (le) (rate(elastic_pytorch_recovery_seconds_bucket[$__rate_interval])))",
            },
            "From the disturbance to the next training step.",
            unit="s",
        ),
        Panel(
            "Steps done again",
            {"steps": f"sum(increase(elastic_pytorch_steps_lost_total{{{CHOSEN}}}[$__rate_interval])) > 0"},
            "Steps since the last checkpoint. If they cost too much, save more often.",
            stacked=True,
            events=True,
        ),
        Panel(
            "Failures of training code",
            {"{{kind}}": f"sum by (kind) (increase(elastic_pytorch_failures_total{{{CHOSEN}}}[$__rate_interval])) > 0"},
            "By kind. Killed comes from outside and does not count against a job.",
            stacked=True,
            events=True,
            colors={
                "Exit": BAD,
                "Signal": "dark-red",
                "OutOfMemory": "purple",
                "Pod": GOING,
                "Hang": COMING,
                "Killed": IDLE,
            },
        ),
    ],
    "Agents": [
        Panel(
            "Connected",
            {"agents": "sum(elastic_pytorch_agents_connected)", "waiting for a round": "sum(elastic_pytorch_long_polls_open)"},
            "Each agent waits for the next round nearly all the time, so the two lines should coincide.",
        ),
        Panel(
            "Requests",
            {"{{request}} {{code}}": "sum by (request, code) (rate(elastic_pytorch_agent_requests_total[$__rate_interval]))"},
            unit="reqps",
        ),
        Panel(
            "Tokens reviewed",
            {"{{result}}": "sum by (result) (rate(elastic_pytorch_token_reviews_total[$__rate_interval]))"},
            unit="reqps",
            colors={"valid": GOOD, "invalid": GOING, "error": BAD},
        ),
    ],
    "The operator": [
        Panel(
            "Leader",
            {"{{pod}}": 'max by (pod) (leader_election_master_status{name="elastic-pytorch-operator"})'},
            "1: this replica leads. There may be none for some seconds.",
        ),
        Panel(
            "Reconciles",
            {"{{result}}": f"sum by (result) (rate(controller_runtime_reconcile_total{{{CONTROLLER}}}[$__rate_interval]))"},
            unit="ops",
            colors={"success": GOOD, "requeue_after": DONE, "error": BAD},
        ),
        Panel(
            "How long work waits and takes",
            {
                f"{what}, 99th percentile": f"histogram_quantile(0.99, sum by (le) (rate({metric}_bucket{{{JOB}}}[$__rate_interval])))"
                for what, metric in (
                    ("waits", "workqueue_queue_duration_seconds"),
                    ("takes", "workqueue_work_duration_seconds"),
                )
            },
            unit="s",
        ),
        Panel("Queue", {"jobs": f"max(workqueue_depth{{{JOB}}})"}),
        Panel(
            "Requests to the API server",
            {"{{method}} {{code}}": f"sum by (method, code) (rate(rest_client_requests_total{{{OURS}}}[$__rate_interval]))"},
            unit="reqps",
        ),
        Panel(
            "Memory",
            {"{{pod}}": f"max by (pod) (process_resident_memory_bytes{{{OURS}}})"},
            unit="bytes",
        ),
    ],
}


def page() -> str:
    """The dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": _place(0, top, WIDTH, 1)})
        top += 1
        width = WIDTH // 3
        for number, panel in enumerate(row):
            place = _place(number % 3 * width, top + number // 3 * HEIGHT, width, HEIGHT)
            panels.append({**_panel(panel), "gridPos": place})
        top += -(-len(row) // 3) * HEIGHT
    for number, found in enumerate(panels, start=1):
        found["id"] = number
    dashboard = {
        "title": "Elastic PyTorch jobs",
        "uid": "elastic-pytorch",
        "tags": ["pytorch", "training"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"},
                {
                    "name": "namespace",
                    "type": "query",
                    "label": "Namespace",
                    "datasource": SOURCE,
                    "query": "label_values(elastic_pytorch_jobs, namespace)",
                    "refresh": 2,  # Grafana's number for "when the time range changes"
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    stacking = {"mode": "normal"} if panel.stacked else {"mode": "none"}
    custom: dict[str, Any] = {"stacking": stacking, "fillOpacity": 30 if panel.stacked else 0, "lineWidth": 1}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "custom": custom}
    if panel.events:
        custom |= {"drawStyle": "bars", "fillOpacity": 80}
        defaults["noValue"] = "None"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": [_color(name, color) for name, color in panel.colors.items()]},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for number, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def _color(series: str, color: str) -> dict[str, Any]:
    fixed = {"mode": "fixed", "fixedColor": color}
    return {"matcher": {"id": "byName", "options": series}, "properties": [{"id": "color", "value": fixed}]}
