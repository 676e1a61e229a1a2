"""The command line: `kubectl epj VERB …`."""

import argparse
import difflib
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from elastic_pytorch_client.cluster import Access, Cluster, KubernetesCluster
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.text import without_commands
from elastic_pytorch_client.verbs import changes, list_jobs, logs, migrate, stacks, status, ui, why
from elastic_pytorch_client.verbs.context import Context, Verb

FAILED, INTERRUPTED = 1, 130
PLAIN_WIDTH = 140  # without a terminal


def _verb(module: ModuleType) -> Verb:
    """The verb of a module; `migrate` runs without a cluster."""
    run = getattr(module, "run", lambda context, options: FAILED)
    name, about, examples = module.NAME, module.HELP, module.EXAMPLES
    return Verb(name, about, module.add_arguments, run, examples)


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        *map(_verb, (status, list_jobs, ui, why, logs, stacks)),
        *changes.VERBS,
        _verb(migrate),
    )
}


def main() -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            errors = "strict" if stream is sys.stdin else "backslashreplace"
            stream.reconfigure(encoding="utf-8", errors=errors)  # as kubectl, whatever the locale
    sys.exit(run(sys.argv[1:], KubernetesCluster.connect, _console()))


def run(
    words: Sequence[str],
    connect: Callable[[Access], Cluster],
    console: Console,
    make: Callable[..., Context] = Context,
) -> int:
    """Runs a command line; returns the exit code, which `--help` explains."""
    options = parser().parse_args(list(words))
    verb = VERBS[options.verb]
    try:
        if options.verb == migrate.NAME:
            return migrate.run_offline(options, sys.stdout, sys.stderr)
        access = {name: getattr(options, name) for name in Access.__dataclass_fields__}
        access["act_as_groups"] = tuple(options.act_as_groups)
        cluster = connect(Access(**access))
        if verb in changes.VERBS and cluster.context:
            print(f"context: {cluster.context}", file=sys.stderr)
        everywhere = getattr(options, "all_namespaces", False)
        return verb.run(make(cluster, console, None if everywhere else cluster.namespace), options)
    except EpjError as error:
        print(f"error: {without_commands(str(error))}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


class TerminalConsole(Console):
    """Passes on no command for the terminal but colors, as a tenant's text may hold any."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = without_commands(segment.text, colors=True)
            yield segment if segment.control else Segment(text, segment.style)


class _Parser(argparse.ArgumentParser):
    """Suggests a verb for a misspelt one."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"argument VERB: invalid choice: '([^']*)'", message):
            message = f'there is no verb "{unknown[1]}"'
            if likely := difflib.get_close_matches(unknown[1], VERBS, n=1):
                message += f'; did you mean "{likely[0]}"?'
        super().error(message)


class _Collect(argparse.Action):
    """Adds to the default, so that values before the verb and behind it come together."""

    def __call__(
        self, parser: object, namespace: object, values: object, option_string: object = None
    ) -> None:
        self.default.append(values)


def parser() -> argparse.ArgumentParser:
    outer = _Parser(
        prog="kubectl epj",
        description=(
            "Shows how elastic PyTorch jobs train and why they do not, changes their size, and "
            "migrates other jobs."
        ),
        epilog=(
            "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted; why: 3 if something is "
            "not as wanted"
        ),
    )
    outer.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    groups: list[str] = []
    _add_access(outer, "", groups)
    verbs = outer.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        examples = (f"  kubectl epj {name} {words}".rstrip() for words in verb.examples)
        inner = verbs.add_parser(
            name,
            help=verb.help,
            description=f"{verb.help[:1].upper()}{verb.help[1:]}.",
            epilog="\n".join(["examples:", *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        # Left out, they leave what stood before the verb.
        _add_access(inner, argparse.SUPPRESS, groups)
        verb.add_arguments(inner)
    return outer


def actions_of(verb: str) -> list[argparse.Action]:
    outer = parser()
    if not verb:
        return outer._actions
    verbs = (each for each in outer._actions if isinstance(each, argparse._SubParsersAction))
    actions: list[argparse.Action] = next(verbs).choices[verb]._actions
    return actions


def _add_access(parser: argparse.ArgumentParser, default: str, groups: list[str]) -> None:
    def add(*options: str, about: str, **others: Any) -> None:
        parser.add_argument(*options, **{"default": default, "help": about, **others})

    of_context = "of the kubeconfig (default: the context's)"
    add("-n", "--namespace", about="of the job (default: the context's)")
    add("--context", about="of the kubeconfig (default: its current one)")
    add("--kubeconfig", metavar="FILE", about="default: $KUBECONFIG or ~/.kube/config")
    add("--cluster", about=of_context)
    add("--user", about=of_context)
    add("--as", dest="act_as", metavar="USER", about="act as another user")
    several = "act as one of a group, which may be repeated"
    group = {"dest": "act_as_groups", "metavar": "GROUP", "action": _Collect, "default": groups}
    add("--as-group", about=several, **group)
    add("--as-uid", dest="act_as_uid", metavar="UID", about="act with another UID")


def _console() -> TerminalConsole:
    if hasattr(signal, "SIGPIPE"):
        # So that `kubectl epj logs … | head` ends quietly.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PLAIN_WIDTH
    return TerminalConsole(width=wide, highlight=False)


def _version() -> str:
    try:
        return version("elastic-pytorch-client")
    except PackageNotFoundError:
        return "(not installed)"
