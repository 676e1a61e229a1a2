"""`kubectl epj migrate -f FILE`: ElasticPyTorchJobs from other kinds and Slurm's scripts."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TextIO

import yaml

from elastic_pytorch_client import names
from elastic_pytorch_client.errors import Refused, one_line
from elastic_pytorch_client.migration.documents import Migrated, migrate_documents, migrate_script
from elastic_pytorch_client.migration.remarks import Remark
from elastic_pytorch_client.yaml_text import read_documents, write_documents

NAME, HELP = "migrate", "write ElasticPyTorchJobs for other kinds of jobs; needs no cluster"
EXAMPLES = ("-f job.yaml", "--slurm train.sbatch", "-f job.yaml --runtime runtime.yaml")
FAILED = 1
NAMED_AT_MOST = 3
# Packages with the checks of a cluster, such as local mode, raise ValueError for a job.
CHECKS = "elastic_pytorch_client.job_checks"
Check = Callable[[dict[str, Any]], object]
# Helm's own actions, as Argo and shells have braces, too.
HELM_ACTION = re.compile(
    r"\{\{-?\s*(?:\.(?:Values|Release|Chart|Files|Capabilities|Template)\b"
    r"|(?:include|template|define|if|range|with|end)\b)"
)
RENDER = "render it first, helm template CHART | kubectl epj migrate -f -"
YAML_SOURCE = ' in "<unicode string>",'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="*", default=[], help="manifests, YAML or JSON; - is stdin"
    )
    for options, about in (
        (("-f", "--filename"), "the same, as kubectl has it"),
        (("--slurm",), "batch scripts of Slurm (sbatch)"),
        (("--runtime",), "ClusterTrainingRuntimes that TrainJobs refer to"),
    ):
        parser.add_argument(*options, metavar="FILE", action="append", default=[], help=about)
    parser.add_argument(
        "--entrypoint",
        metavar="WORDS",
        default="",
        help="the image's ENTRYPOINT, for containers without a command",
    )


def run_offline(options: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Migrates without a cluster: manifests go to `out`, remarks to `err`.

    Returns:
        0, or 1 if a document cannot be migrated; the others are written all the same.

    Raises:
        Refused: a file or an option cannot be read, or no file is named.
    """
    files = [*options.files, *options.filename]
    if not files and not options.slurm:
        raise Refused(
            "which manifests? `kubectl epj migrate -f job.yaml`, `-f -` for stdin, or "
            "`--slurm train.sbatch`"
        )
    try:
        entrypoint = shlex.split(options.entrypoint)
    except ValueError as error:
        raise Refused(f"cannot read --entrypoint: {error}") from error
    runtimes = [runtime for file in options.runtime for runtime in _read(file)]
    checks: list[Check] = [check.load() for check in entry_points(group=CHECKS)]
    found: dict[str, list[Migrated]] = {}
    for file in files:
        of_file = migrate_documents(_read(file), runtimes, entrypoint)
        found.setdefault(file, []).extend(_checked(migrated, checks) for migrated in of_file)
    for file in options.slurm:
        migrated = migrate_script(_text(file), file)
        found.setdefault(file, []).append(_checked(migrated, checks))
    all_found = [migrated for of_file in found.values() for migrated in of_file]
    documents = [document for migrated in all_found for document in migrated.documents]
    if documents:
        out.write(write_documents(documents))
    for file, of_file in found.items():
        err.write(_describe_all(_source(file), of_file))
    return FAILED if any(migrated.failed for migrated in all_found) else 0


def _checked(migrated: Migrated, checks: Sequence[Check]) -> Migrated:
    for job in (document for document in migrated.documents if document.get("kind") == names.KIND):
        for check in checks:
            try:
                check(dict(job))
            except ValueError as error:
                failed = Remark("the new job", f"no cluster would admit it: {error}")
                return replace(migrated, documents=(), failed=failed)
    return migrated


def _read(file: str) -> list[Any]:
    source, text = _source(file), _text(file)
    if HELM_ACTION.search(text):
        raise Refused(f"{source} is a Helm template: {RENDER}")
    try:
        return read_documents(text)
    except (yaml.YAMLError, ValueError) as error:
        if "{{" in text:
            raise Refused(f"{source} is a template: {RENDER}") from error
        why = one_line(str(error).replace(YAML_SOURCE, " at"))
        raise Refused(f"cannot read {source}: {why}") from error


def _source(file: str) -> str:
    return "stdin" if file == "-" else file


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"cannot read {_source(file)}: {error}") from error


def _describe_all(file: str, found: Sequence[Migrated]) -> str:
    titles: dict[Remark, list[str]] = {}
    for one in found:
        for remark in one.remarks:
            titles.setdefault(remark, []).append(one.title)
    groups: dict[tuple[str, ...], list[Remark]] = {}
    for remark, those in titles.items():
        if len(those) > 1:
            groups.setdefault(tuple(those), []).append(remark)
    parts = [
        _describe(file, f"{len(those)} objects ({_some(those)})", remarks, None)
        for those, remarks in groups.items()
    ]
    for one in found:
        own = [remark for remark in one.remarks if len(titles[remark]) == 1]
        parts.append(_describe(file, one.title, own, one.failed))
    return "".join(parts)


def _some(titles: Sequence[str]) -> str:
    left = len(titles) - NAMED_AT_MOST
    return ", ".join(titles[:NAMED_AT_MOST]) + (f", and {left} more" if left > 0 else "")


def _describe(file: str, title: str, remarks: Sequence[Remark], failed: Remark | None) -> str:
    lines = [f"  {remark}\n" for remark in remarks]
    lines += [] if failed is None else [f"  error: {failed}\n"]
    return f"{file}: {title}\n{''.join(lines)}" if lines else ""
