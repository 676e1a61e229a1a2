"""`kubectl epj why NAME`: why a job does not run at the wanted size, and what to do."""

import argparse

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from elastic_pytorch_client.evidence import read_evidence, read_nodes
from elastic_pytorch_client.reading.diagnosis import Diagnosis, diagnose
from elastic_pytorch_client.reading.pods.workers import add_pods
from elastic_pytorch_client.verbs.context import Context, add_name, add_output, print_data
from elastic_pytorch_client.views.widgets import ACCENT, BAD, BUSY, GOOD, MUTED

NAME, HELP = "why", "why a job does not run at the wanted size, and what to do about it"
EXAMPLES = ("char-lm", "char-lm -o yaml")
UNWELL = 3  # exit code: something is not as wanted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    add_output(parser)


def run(context: Context, options: argparse.Namespace) -> int:
    job = context.job(options.name)
    evidence = read_evidence(context.cluster, job, read_nodes(context.cluster), context.now())
    diagnosis = diagnose(add_pods(job, evidence.pods), evidence)
    if options.output:
        about = {
            "namespace": job.namespace,
            "job": job.name,
            "asWanted": diagnosis.well,
            "headline": diagnosis.headline,
        }
        findings = [{"what": finding.what, "do": finding.do} for finding in diagnosis.findings]
        print_data(context, options.output, {**about, "findings": findings})
    else:
        context.console.print(show_why(diagnosis, job.goodput.lost))
    return 0 if diagnosis.well else UNWELL


def show_why(diagnosis: Diagnosis, lost: str = "") -> RenderableType:
    mark, style = ("✔", GOOD) if diagnosis.well else ("▲", BUSY) if diagnosis.good else ("✗", BAD)
    parts: list[RenderableType] = [
        Text(f"{mark} ", style).append(diagnosis.headline, "bold default")
    ]
    for finding in diagnosis.findings:
        parts += [Text(), Padding(Text(finding.what), (0, 0, 0, 2))]
        for line in finding.do.splitlines():
            command = line.startswith("  ")
            text = Text(line.strip(), ACCENT)
            if not command:
                text = Text("→ ", ACCENT).append(line, "default")
            parts.append(Padding(text, (0, 0, 0, 6 if command else 2)))
    if lost:
        since = Text(f"Since it began, the job lost {lost} of its time.", MUTED)
        parts += [Text(), Padding(since, (0, 0, 0, 2))]
    return Group(*parts)
