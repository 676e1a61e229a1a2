"""Draws the terminals of docs/use/plugin.md as SVG, from records of a real cluster."""

import re
from io import StringIO

from elastic_pytorch_client.evidence import read_evidence, read_nodes
from elastic_pytorch_client.reading.diagnosis import diagnose
from elastic_pytorch_client.verbs.why import show_why
from elastic_pytorch_client.views.status_view import show_status
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.text import Text

from tests.plugin.recorded_cluster import RecordedCluster, events_of, job_of, moment_of

COLUMNS = 118
# Without the fonts that it would load from the network; the viewer has a monospaced one.
FORMAT = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw_screens() -> dict[str, str]:
    status = show_status(job_of("whole"), events_of("whole"), moment_of("whole"))
    return {
        "status.svg": _terminal({"status char-lm": status}),
        "why.svg": _terminal({f"why {name}": _why(name) for name in ("too-large", "no-volume")}),
    }


def _why(name: str) -> RenderableType:
    cluster, job = RecordedCluster(name), job_of(name)
    evidence = read_evidence(cluster, job, read_nodes(cluster), moment_of(name))
    return show_why(diagnose(job, evidence))


def _terminal(shown: dict[str, RenderableType]) -> str:
    console = Console(
        width=COLUMNS, record=True, file=StringIO(), force_terminal=True, highlight=False
    )
    for number, (verb, view) in enumerate(shown.items()):
        prompt = Text("\n$ " if number else "$ ", "green")
        prompt.append(f"kubectl epj {verb}", "bold default")
        console.print(prompt, view, sep="\n")
    return console.export_svg(title="", code_format=FORMAT, unique_id="terminal")
