"""The context of every verb, and options that several have."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml
from rich.console import Console

from elastic_pytorch_client import names
from elastic_pytorch_client.cluster import Cluster
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.watch import Clock, wait_for_job


def time_of_day() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Context:
    cluster: Cluster
    console: Console
    namespace: str | None  # None: all
    now: Callable[[], datetime] = time_of_day
    clock: Clock = field(default_factory=Clock)

    @property
    def one_namespace(self) -> str:
        return self.namespace if self.namespace is not None else self.cluster.namespace

    def job(self, name: str) -> JobView:
        return view_job(self.cluster.get_job(self.one_namespace, name))

    def wait(
        self, name: str, fulfilled: Callable[[JobView], bool], what: str, seconds: float
    ) -> JobView:
        place = (self.cluster, self.one_namespace, name)
        return wait_for_job(*place, fulfilled, what, timeout_seconds=seconds, clock=self.clock)


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Context, argparse.Namespace], int]  # returns the exit code
    examples: tuple[str, ...] = ()  # the words after the verb


def add_output(parser: argparse.ArgumentParser, *others: str) -> None:
    formats = ("json", "yaml", *others)
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        metavar="FORMAT",
        help=f"what to print: {', '.join(formats)}",
    )


def print_data(context: Context, output: str, data: Mapping[str, Any]) -> None:
    if output == "json":
        text = json.dumps(data, indent=2)
    else:
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip("\n")
    context.console.print(text, markup=False, soft_wrap=True)


def job_name(text: str) -> str:
    """The name in `NAME` or `epj/NAME`, as in kubectl."""
    kind, slash, name = text.partition("/")
    kinds = ("epj", "elasticpytorchjob", "elasticpytorchjobs")
    if slash and kind.removesuffix(f".{names.GROUP}") in kinds:
        text = name
    if not text or "/" in text:
        raise argparse.ArgumentTypeError(f"not the name of a job: {kind}{slash}{name}")
    return text


def add_all_namespaces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces"
    )


def add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", type=job_name, help="the job, as NAME or epj/NAME")
