"""`kubectl epj why NAME`: why a job does not run at the wanted size, and what to do."""

import argparse

from elastic_pytorch_client.evidence import read_evidence, read_nodes
from elastic_pytorch_client.reading.diagnosis import diagnose
from elastic_pytorch_client.reading.pods.workers import add_pods
from elastic_pytorch_client.verbs.context import Context, add_name, add_output, print_data
from elastic_pytorch_client.views.why_view import show_why

NAME, HELP = "why", "why a job does not run at the wanted size, and what to do about it"
UNWELL = 3  # exit code: something is not as wanted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    add_output(parser)


def run(context: Context, options: argparse.Namespace) -> int:
    job = context.job(options.name)
    evidence = read_evidence(context.cluster, job, read_nodes(context.cluster), context.now())
    diagnosis = diagnose(add_pods(job, evidence.pods), evidence)
    if options.output:
        about = {"namespace": job.namespace, "job": job.name, "asWanted": diagnosis.well, "headline": diagnosis.headline}
        findings = [{"what": finding.what, "do": finding.do} for finding in diagnosis.findings]
        print_data(context, options.output, {**about, "findings": findings})
    else:
        context.console.print(show_why(diagnosis, job.goodput.lost))
    return 0 if diagnosis.well else UNWELL
