"""Draws the pictures of docs/plugin.md anew, of what a real cluster once said (see tests/plugin/recorded).

.venv/bin/python hack/screens
"""

import json
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from elastic_pytorch_client.reading.diagnosis import Evidence, diagnose
from elastic_pytorch_client.reading.job_view import JobView, parse_time, view_job
from elastic_pytorch_client.reading.nodes import view_node
from elastic_pytorch_client.reading.series import gather
from elastic_pytorch_client.reading.timeline import JobEvent, read_events
from elastic_pytorch_client.views.figure import save_figure
from elastic_pytorch_client.views.plot_view import draw_plot
from elastic_pytorch_client.views.status_view import show_status
from elastic_pytorch_client.views.top_view import SparklineSamples, show_top
from elastic_pytorch_client.views.why_view import show_why
from rich.console import Group
from rich.text import Text
from terminal import picture

ROOT = Path(__file__).parents[2]
RECORDED, SCREENS = ROOT / "tests" / "plugin" / "recorded", ROOT / "docs" / "screens"
WIDTH = 118


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    status, plot, why = (read(name) for name in ("whole", "resumed", "too-large"))
    picture(
        show_status(job_of(status), events_of(status), moment_of(status)),
        command="kubectl epj status char-lm",
        width=WIDTH,
        path=folder / "status.png",
    )
    jobs = [job_of(read(name)) for name in ("whole", "no-volume", "suspended", "failed")]
    sparklines = {job.uid: SparklineSamples.from_series(gather(job, [])) for job in jobs}
    picture(
        show_top(jobs, sparklines, moment_of(status), namespaces=False),
        command="kubectl epj top",
        width=WIDTH + 22,
        path=folder / "top.png",
    )
    evidence = Evidence(why["pods"], [view_node(node) for node in why["nodes"]], events_of(why), {}, moment_of(why))
    no_volume = read("no-volume")
    warning = next(e for e in reversed(no_volume["events"]) if e["type"] == "Warning" and e["involvedObject"]["kind"] == "Pod")
    warnings = {warning["involvedObject"]["name"]: f"{warning['reason']}: {' '.join(warning['message'].split())}"}
    other = Evidence(no_volume["pods"], [], [], warnings, moment_of(no_volume))
    picture(
        Group(
            show_why(diagnose(job_of(why), evidence)),
            Text(),
            Text("$ ", "green").append("kubectl epj why no-volume", "bold default"),
            show_why(diagnose(job_of(no_volume), other)),
        ),
        command="kubectl epj why too-large",
        width=WIDTH,
        path=folder / "why.png",
    )
    job = job_of(plot)
    series = gather(job, events_of(plot), now=moment_of(plot))
    picture(draw_plot(job, series, 100), command="kubectl epj plot char-lm", width=100, path=folder / "plot.png")
    save_figure(job, series, folder / "figure.png")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


def job_of(found: dict[str, Any]) -> JobView:
    return replace(view_job(found["job"]), seen=True)


def events_of(found: dict[str, Any]) -> list[JobEvent]:
    return read_events(
        (e for e in found["events"] if e["involvedObject"]["kind"] == "ElasticPyTorchJob"), found["job"]["metadata"]["uid"]
    )


def moment_of(found: dict[str, Any]) -> datetime:
    times = [parse_time(e.get("eventTime") or e.get("lastTimestamp")) for e in found["events"]]
    times += [parse_time(c["lastTransitionTime"]) for c in found["job"]["status"]["conditions"]]
    return max(time for time in times if time) + timedelta(seconds=4)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SCREENS)
