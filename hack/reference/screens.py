"""Draws the terminals of docs/use/plugin.md as SVG, from records of a real cluster."""

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

from elastic_pytorch_client.reading.diagnosis import Evidence, diagnose
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.reading.nodes import view_node
from elastic_pytorch_client.reading.text import parse_time
from elastic_pytorch_client.reading.timeline import JobEvent, read_events
from elastic_pytorch_client.verbs.why import show_why
from elastic_pytorch_client.views.status_view import show_status
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 118
RECORDED = ROOT / "tests" / "plugin" / "recorded"
# Without the fonts that it would load from the network; the viewer has a monospaced one.
FORMAT = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


class Recording:
    """A job of a real cluster, with its objects and events, seconds after its last event."""

    def __init__(self, name: str) -> None:
        found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
        self.pods, self.events = found["pods"], found["events"]
        nodes = json.loads((RECORDED / "nodes.json").read_text())
        self.nodes = [view_node(node) for node in nodes]
        self.job: JobView = replace(view_job(found["job"]), seen=True)
        of_job = (e for e in self.events if e["involvedObject"]["kind"] == "ElasticPyTorchJob")
        self.job_events: list[JobEvent] = read_events(of_job, self.job.uid)
        moments = [event.get("eventTime") or event.get("lastTimestamp") for event in self.events]
        conditions = found["job"]["status"]["conditions"]
        moments += [condition["lastTransitionTime"] for condition in conditions]
        times = map(parse_time, moments)
        self.now: datetime = max(time for time in times if time) + timedelta(seconds=4)

    def last_warning(self) -> dict[str, str]:
        of_pods = (e for e in self.events if e["involvedObject"]["kind"] == "Pod")
        warnings = [event for event in of_pods if event["type"] == "Warning"]
        return {
            e["involvedObject"]["name"]: f"{e['reason']}: {' '.join(e['message'].split())}"
            for e in warnings[-1:]
        }


def draw_screens() -> dict[str, str]:
    whole, large, unbound = map(Recording, ("whole", "too-large", "no-volume"))
    seen = Evidence(large.pods, large.nodes, large.job_events, {}, large.now)
    of_large = show_why(diagnose(large.job, seen))
    seen = Evidence(unbound.pods, [], [], unbound.last_warning(), unbound.now)
    of_unbound = show_why(diagnose(unbound.job, seen))
    status = show_status(whole.job, whole.job_events, whole.now)
    return {
        "status.svg": _terminal({"status char-lm": status}),
        "why.svg": _terminal({"why too-large": of_large, "why no-volume": of_unbound}),
    }


def _terminal(shown: dict[str, RenderableType]) -> str:
    console = Console(
        width=COLUMNS, record=True, file=StringIO(), force_terminal=True, highlight=False
    )
    for number, (verb, view) in enumerate(shown.items()):
        prompt = Text("\n$ " if number else "$ ", "green")
        prompt.append(f"kubectl epj {verb}", "bold default")
        console.print(prompt, view, sep="\n")
    return console.export_svg(title="", code_format=FORMAT, unique_id="terminal")
