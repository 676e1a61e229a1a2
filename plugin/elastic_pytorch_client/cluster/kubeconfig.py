"""The cluster that kubectl would act on: the files of a kubeconfig merged, and one context of them chosen.

The rules are those of client-go's `clientcmd`, against which the tests compare them. The official
Python client merges otherwise: there the last file's current context counts, a context needs a
current one beside it, and paths are relative to the first file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elastic_pytorch_client.errors import Unreachable, one_line

KINDS = ("clusters", "contexts", "users")
PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")

Entries = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Access:
    """The cluster to connect to, as kubectl's own options name it.

    Attributes:
        kubeconfig: a kubeconfig file; empty: the files of $KUBECONFIG, or ~/.kube/config.
        context: a context of the kubeconfig; empty: its current one.
        namespace: the namespace; empty: the context's.
        cluster: a cluster of the kubeconfig; empty: the context's.
        user: a user of the kubeconfig; empty: the context's.
        act_as: a user or ServiceAccount to act as; empty: the one that the user of the kubeconfig
            names, or none.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    cluster: str = ""
    user: str = ""
    act_as: str = ""


class NoContext(Unreachable):
    """No kubeconfig chooses a cluster, as in a pod."""


@dataclass(frozen=True, slots=True)
class Chosen:
    config: dict[str, Any]  # of this context alone, with absolute paths, for the official client
    context: str
    namespace: str  # empty: none
    is_one_of_several: bool  # whether contexts of other clusters stand beside it
    act_as: str = ""  # empty: none


def read_kubeconfig(access: Access, environment: Mapping[str, str]) -> Chosen:
    """Reads the context that is meant.

    Args:
        access: what the options say.
        environment: KUBECONFIG and HOME.

    Raises:
        NoContext: there is no file, or no context is current.
        Unreachable: a file or the context cannot be used.
    """
    current, (clusters, contexts, users) = _merge(_files(access, environment))
    name = access.context or current
    if not name and not access.cluster:
        raise NoContext(f"no cluster is configured: {_nothing(access, environment, contexts)}")
    if name and name not in contexts:
        raise Unreachable(
            f'cannot use the kubeconfig: it has no context "{name}"; {_choices(contexts)}'
        )
    context = contexts.get(name, {})
    cluster, user = (
        access.cluster or str(context.get("cluster", "")),
        access.user or str(context.get("user", "")),
    )
    for kind, wanted, given, known in (
        ("cluster", cluster, access.cluster, clusters),
        ("user", user, access.user, users),
    ):
        if wanted not in known and (wanted or kind == "cluster"):
            missing = (
                f'it has no {kind} "{wanted}"'
                if given
                else f'the {kind} "{wanted}" of the context "{name}" is missing'
            )
            raise Unreachable(f"cannot use the kubeconfig: {missing}")
    if "server" not in clusters[cluster]:
        raise Unreachable(f'cannot use the kubeconfig: the cluster "{cluster}" has no server')
    fields = users.get(user, {})
    if others := sorted(field for field in fields if field.startswith("as-")):
        raise Unreachable(
            f'cannot use the kubeconfig: the user "{user}" acts as another with {others[0]}: only kubectl can'
        )
    config = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": cluster, "user": user}}],
        "clusters": [{"name": cluster, "cluster": clusters[cluster]}],
        "users": [{"name": user, "user": _with_token(users[user])}] if user else [],
    }
    several = len({other.get("cluster") for other in contexts.values()}) > 1
    return Chosen(
        config,
        name,
        str(context.get("namespace", "")),
        several,
        access.act_as or str(fields.get("as", "")),
    )


def _files(access: Access, environment: Mapping[str, str]) -> list[Path]:
    """The files that count, the first one first; those of KUBECONFIG may be missing."""
    if access.kubeconfig:
        return [Path(access.kubeconfig)]
    if variable := environment.get("KUBECONFIG"):
        files = [Path(part) for part in dict.fromkeys(variable.split(os.pathsep)) if part]
    else:
        files = [Path(environment.get("HOME") or Path.home(), ".kube", "config")]
    return [file for file in files if file.exists()]


def _merge(files: list[Path]) -> tuple[str, tuple[Entries, Entries, Entries]]:
    """The current context and all entries: the first file that names one has all of it."""
    current, merged = "", (Entries(), Entries(), Entries())
    for file in files:
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
            content = {} if content is None else content
            current = current or content.get("current-context") or ""
            if content.get("kind", "Config") != "Config":
                raise ValueError(f"its kind is {content['kind']}")
            for kind, entries in zip(KINDS, merged, strict=True):
                for name, entry in _entries(content, kind, file.parent.absolute()).items():
                    entries.setdefault(name, entry)
        except (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError) as error:
            raise Unreachable(f"cannot use the kubeconfig {file}: {one_line(error)}") from error
    return current, merged


def _entries(content: Mapping[str, Any], kind: str, folder: Path) -> Entries:
    """A file's entries of a kind, by name, without empty fields, and with absolute paths."""
    found: Entries = {}
    listed = [] if content.get(kind) is None else content[kind]
    if not isinstance(listed, list):
        raise TypeError(f"{kind} is not a list")
    for named in listed:
        name, entry = named["name"], named.get(kind.removesuffix("s")) or {}
        if name in found:
            raise ValueError(f'{kind} has "{name}" twice')
        found[name] = {field: value for field, value in entry.items() if value not in (None, "")}
        for field in PATHS:
            if field in found[name]:
                found[name][field] = str(folder / found[name][field])
        command = (found[name].get("exec") or {}).get("command") or ""
        if os.sep in command:  # otherwise it is looked up in PATH
            found[name]["exec"] = found[name]["exec"] | {"command": str(folder / command)}
    return found


def _with_token(user: dict[str, Any]) -> dict[str, Any]:
    """A user whose token is read: that of a file counts, without the line's end that most such files have."""
    if "tokenFile" not in user:
        return user
    try:
        return user | {"token": Path(user["tokenFile"]).read_text(encoding="utf-8").strip()}
    except OSError as error:
        raise Unreachable(f"cannot use the kubeconfig: {one_line(error)}") from error


def _nothing(access: Access, environment: Mapping[str, str], contexts: Entries) -> str:
    if contexts:
        return (
            f"the kubeconfig has no current context: choose one by --context; {_choices(contexts)}"
        )
    return f"no context stands in {access.kubeconfig or environment.get('KUBECONFIG') or '~/.kube/config'}"


def _choices(contexts: Entries) -> str:
    return f"it has {', '.join(sorted(contexts)) or 'none'}"
