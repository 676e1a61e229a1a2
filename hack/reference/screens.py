"""Draws the pictures of docs/use/plugin.md from what a real cluster said (tests/plugin/recorded): terminals as SVG."""

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
RECORDED = ROOT / "tests" / "plugin" / "recorded"
# Without the fonts that it would fetch from the network: the viewer's monospaced font does.
FORMAT = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


class Recording:
    """A job of a real cluster: its objects and events, as they were a few seconds after its last event."""

    def __init__(self, name: str) -> None:
        found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
        self.pods, self.nodes, self.events = (
            found["pods"],
            [view_node(n) for n in json.loads((RECORDED / "nodes.json").read_text())],
            found["events"],
        )
        self.job: JobView = replace(view_job(found["job"]), seen=True)
        of_job = (
            event for event in self.events if event["involvedObject"]["kind"] == "ElasticPyTorchJob"
        )
        self.job_events: list[JobEvent] = read_events(of_job, self.job.uid)
        times = [
            parse_time(event.get("eventTime") or event.get("lastTimestamp"))
            for event in self.events
        ]
        times += [
            parse_time(condition["lastTransitionTime"])
            for condition in found["job"]["status"]["conditions"]
        ]
        self.now: datetime = max(time for time in times if time) + timedelta(seconds=4)

    def last_warning(self) -> dict[str, str]:
        warnings = [
            e
            for e in self.events
            if e["type"] == "Warning" and e["involvedObject"]["kind"] == "Pod"
        ]
        return {
            e["involvedObject"]["name"]: f"{e['reason']}: {' '.join(e['message'].split())}"
            for e in warnings[-1:]
        }


def draw_screens() -> dict[str, str]:
    """Returns the SVG of each verb's terminal, by the name of its file."""
    whole, too_large, no_volume = map(Recording, ("whole", "too-large", "no-volume"))
    unplaced = diagnose(
        too_large.job,
        Evidence(too_large.pods, too_large.nodes, too_large.job_events, {}, too_large.now),
    )
    unbound = diagnose(
        no_volume.job, Evidence(no_volume.pods, [], [], no_volume.last_warning(), no_volume.now)
    )
    return {
        "status.svg": _terminal(
            118, {"status char-lm": show_status(whole.job, whole.job_events, whole.now)}
        ),
        "why.svg": _terminal(
            118, {"why too-large": show_why(unplaced), "why no-volume": show_why(unbound)}
        ),
    }


def _terminal(columns: int, shown: dict[str, RenderableType]) -> str:
    """A terminal in which verbs have been called, each with what it shows."""
    console = Console(
        width=columns, record=True, file=StringIO(), force_terminal=True, highlight=False
    )
    for number, (verb, view) in enumerate(shown.items()):
        prompt = Text("\n$ " if number else "$ ", "green").append(
            f"kubectl epj {verb}", "bold default"
        )
        console.print(prompt, view, sep="\n")
    return console.export_svg(title="", code_format=FORMAT, unique_id="terminal")
