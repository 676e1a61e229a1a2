"""What kubectl's own shell completion asks for `kubectl epj …`: it runs `kubectl_complete-epj` with the words typed so far."""

import itertools
import sys
from collections.abc import Callable, Sequence

from elastic_pytorch_client import cli
from elastic_pytorch_client.cluster import Access, KubernetesCluster
from elastic_pytorch_client.errors import EpjError

NO_FILES, FILES = ":4", ":0"  # cobra's directives
OPTIONS_WITH_FILE = ("--kubeconfig", "--filename", "--runtime", "--slurm")
OPTIONS_WITH_VALUE = (
    "-n",
    "-o",
    "--namespace",
    "--context",
    "--rank",
    "--index",
    "--tail",
    "--timeout",
    "--turns",
    "--entrypoint",
    "--output",
    "--only",
    "--port",
    *OPTIONS_WITH_FILE,
)


def candidates(words: Sequence[str], job_names: Callable[[Access], Sequence[str]]) -> tuple[list[str], str]:
    """What the last word could become, and the directive for the shell. The last word is unfinished, perhaps empty."""
    *before, unfinished = words or [""]
    verb = next((word for word in _plain(before) if word in cli.VERBS), None)
    listed = cli.values_of(verb) if verb else {}
    if (before and before[-1] in OPTIONS_WITH_FILE) or (verb == "migrate" and not unfinished.startswith("-")):
        return [], FILES
    if unfinished.startswith("-"):
        found = cli.options_of(verb)
    elif before and before[-1] in listed:
        found = list(listed[before[-1]])
    elif before and before[-1] in OPTIONS_WITH_VALUE:
        found = []
    elif verb is None:
        found = list(cli.VERBS)
    elif verb in ("list", "ui") or len(_plain(before)) > 1:
        found = []
    else:
        found = list(job_names(_access(before)))
    return sorted(word for word in found if word.startswith(unfinished)), NO_FILES


def main() -> None:
    """Prints them; nothing if anything is wrong: errors would disturb the command line."""
    try:
        found, directive = candidates(sys.argv[1:], _ask)
    except (EpjError, OSError):
        found, directive = [], NO_FILES
    sys.stdout.write("\n".join([*found, directive]) + "\n")


def _plain(words: Sequence[str]) -> list[str]:
    plain, value = [], False
    for word in words:
        if value:
            value = False
        elif word.startswith("-"):
            value = word in OPTIONS_WITH_VALUE
        else:
            plain.append(word)
    return plain


def _access(words: Sequence[str]) -> Access:
    found = {"-n": "", "--namespace": "", "--context": "", "--kubeconfig": ""}
    for name, value in itertools.pairwise(words):
        if name in found:
            found[name] = value
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in found:
            found[name] = value
    return Access(found["--kubeconfig"], found["--context"], found["--namespace"] or found["-n"])


def _ask(access: Access) -> list[str]:
    cluster = KubernetesCluster.connect(access)
    return [str(job["metadata"]["name"]) for job in cluster.list_jobs(cluster.namespace)]
