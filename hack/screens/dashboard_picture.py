"""Draws docs/screens/dashboard.png: what Prometheus answers to the panels of the chart's dashboard after three minutes of real metrics.

hack/prometheus.sh && .venv/bin/python hack/screens/dashboard_picture.py

`--keep FILE` keeps the answers, `--from FILE` draws them again without asking.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from dashboard_story import NODES, PODS_PER_NODE, REPLICAS, Operators, Story
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from grafana import draw_dashboard
from panels import fill_in, rate_interval_seconds, read_panels
from prometheus_process import Prometheus, prometheus
from simulated_agents import SimulatedKubelets

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "charts" / "elastic-pytorch-operator" / "files" / "dashboard.json"
PICTURE = ROOT / "docs" / "screens" / "dashboard.png"
PROGRAM = ROOT / ".cluster" / "prometheus" / "usr" / "bin" / "prometheus"
SCRAPE_SECONDS = STEP_SECONDS = 1
JOB = "elastic-pytorch-operator-metrics"  # the name of the Service that a ServiceMonitor finds
Recorded = dict[str, Any]


async def record(program: Path, dashboard: dict[str, Any]) -> Recorded:
    """Lives through the story and asks Prometheus what the dashboard would ask.

    Returns:
        `start`, `end` and `step` in seconds, `marks` with what happened when, and for each panel the `answers` to its queries.
    """
    cluster = FakeCluster(NODES, PODS_PER_NODE)
    operators = Operators(cluster)
    connector = aiohttp.TCPConnector(limit=0)
    with tempfile.TemporaryDirectory(prefix="dashboard-") as folder:
        async with aiohttp.ClientSession(connector=connector) as session:
            targets = {name: operators.ports[name][1] for name in REPLICAS}
            async with prometheus(program, Path(folder), session, targets, JOB, SCRAPE_SECONDS) as asked:
                kubelets = SimulatedKubelets(cluster, session, operators.find)
                story = Story(cluster, operators, kubelets)
                start = math.ceil(time.time())
                try:
                    await story.tell(session)
                    end = int(time.time())
                    answers = await _ask(asked, dashboard, start, end)
                finally:
                    await kubelets.close()
                    await operators.close()
    return {"start": start, "end": end, "step": STEP_SECONDS, "marks": story.marks, "answers": answers}


async def _ask(asked: Prometheus, dashboard: dict[str, Any], start: int, end: int) -> list[list[Any]]:
    variables = {"__rate_interval": f"{rate_interval_seconds(STEP_SECONDS, SCRAPE_SECONDS)}s", "namespace": ".*"}
    return [
        [await asked.query_range(fill_in(query.expression, variables), start, end, STEP_SECONDS) for query in panel.queries]
        for panel in read_panels(dashboard)
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hack/screens/dashboard_picture.py", description=__doc__)
    parser.add_argument("--keep", type=Path, help="where to keep the answers")
    parser.add_argument("--from", dest="kept", type=Path, help="answers that were kept")
    parser.add_argument("picture", type=Path, nargs="?", default=PICTURE)
    options = parser.parse_args(arguments)
    dashboard = json.loads(DASHBOARD.read_text())
    if options.kept is None and not PROGRAM.is_file():
        print("there is no Prometheus: run hack/prometheus.sh", file=sys.stderr)
        return 1
    recorded = json.loads(options.kept.read_text()) if options.kept else asyncio.run(record(PROGRAM, dashboard))
    if options.keep:
        options.keep.write_text(json.dumps(recorded))
    empty = draw_dashboard(dashboard, recorded, options.picture)
    for title in empty:
        print(f"nothing to draw: {title}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
