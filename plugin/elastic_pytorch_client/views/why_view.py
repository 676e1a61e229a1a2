"""A diagnosis in prose."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from elastic_pytorch_client.reading.diagnosis import Diagnosis
from elastic_pytorch_client.views.widgets import ACCENT, BAD, GOOD, MUTED


def show_why(diagnosis: Diagnosis, lost: str = "") -> RenderableType:
    """The headline, and each finding with what to do about it; commands stand on lines of their own.

    A text `lost` says what the job's time was lost to.
    """
    mark, style = ("✔", GOOD) if diagnosis.well else ("✗", BAD)
    parts: list[RenderableType] = [Text(f"{mark} ", style).append(diagnosis.headline, "bold default")]
    for finding in diagnosis.findings:
        parts += [Text(), Padding(Text(finding.what), (0, 0, 0, 2))]
        for line in finding.do.splitlines():
            command = line.startswith("  ")
            text = Text(line.strip(), ACCENT) if command else Text("→ ", ACCENT).append(line, "default")
            parts.append(Padding(text, (0, 0, 0, 6 if command else 2)))
    if lost:
        parts += [Text(), Padding(Text(f"Since it began, the job lost {lost} of its time.", MUTED), (0, 0, 0, 2))]
    return Group(*parts)
