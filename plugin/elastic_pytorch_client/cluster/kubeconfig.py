"""The cluster of kubectl: merges the files of a kubeconfig, and chooses one context.

The rules are those of client-go's `clientcmd`, with which the tests compare them. The official
Python client merges otherwise: it takes the last file's current context, a context needs a current
one in its file, and paths are relative to the first file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from elastic_pytorch_client.errors import Unreachable, one_line

KINDS = ("clusters", "contexts", "users")
PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
CANNOT_USE = "cannot use the kubeconfig"
# Those that client-go leaves in a header's name, beside letters, digits, "_", ".", "-" and "~".
HEADER_CHARACTERS = "!#$&'*+^`|"

Entries = dict[str, dict[str, Any]]
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Access:
    """The cluster to connect to, by kubectl's own options.

    Attributes:
        kubeconfig: a kubeconfig file; empty: the files of $KUBECONFIG, or ~/.kube/config.
        context: a context of the kubeconfig; empty: its current one.
        namespace: the namespace; empty: the context's.
        cluster: a cluster of the kubeconfig; empty: the context's.
        user: a user of the kubeconfig; empty: the context's.
        act_as: a user or ServiceAccount to act as; empty: as the user of the kubeconfig says.
        act_as_groups: groups to act as a member of; empty: those of the kubeconfig's user.
        act_as_uid: the UID to act with; empty: that of the kubeconfig's user.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    cluster: str = ""
    user: str = ""
    act_as: str = ""
    act_as_groups: tuple[str, ...] = ()
    act_as_uid: str = ""


class NoContext(Unreachable):
    """No kubeconfig chooses a cluster, as in a pod."""


@dataclass(frozen=True, slots=True)
class Chosen:
    config: dict[str, Any]  # of this context alone, with absolute paths, for the official client
    context: str
    namespace: str  # may be empty
    is_one_of_several: bool  # there are contexts of other clusters
    impersonation: Headers


def read_kubeconfig(access: Access, environment: Mapping[str, str]) -> Chosen:
    """Reads the chosen context; `environment` has KUBECONFIG and HOME.

    Raises:
        NoContext: there is no file, or no current context.
        Unreachable: a file or the context cannot be used.
    """
    current, (clusters, contexts, users) = _merge(_files(access, environment))
    name = access.context or current
    if not name and not access.cluster:
        raise NoContext(f"no cluster is configured: {_nothing(access, environment, contexts)}")
    if name and name not in contexts:
        raise Unreachable(f'{CANNOT_USE}: it has no context "{name}"; {_choices(contexts)}')
    context = contexts.get(name, {})
    cluster = access.cluster or str(context.get("cluster", ""))
    user = access.user or str(context.get("user", ""))
    for kind, wanted, given, known in (
        ("cluster", cluster, access.cluster, clusters),
        ("user", user, access.user, users),
    ):
        if wanted not in known and (wanted or kind == "cluster"):
            missing = f'the {kind} "{wanted}" of the context "{name}" is missing'
            if given:
                missing = f'it has no {kind} "{wanted}"'
            raise Unreachable(f"{CANNOT_USE}: {missing}")
    if "server" not in clusters[cluster]:
        raise Unreachable(f'{CANNOT_USE}: the cluster "{cluster}" has no server')
    config = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": cluster, "user": user}}],
        "clusters": [{"name": cluster, "cluster": clusters[cluster]}],
        "users": [{"name": user, "user": _with_token(users[user])}] if user else [],
    }
    several = len({other.get("cluster") for other in contexts.values()}) > 1
    headers = impersonate(access, users.get(user, {}))
    return Chosen(config, name, str(context.get("namespace", "")), several, headers)


def impersonate(access: Access, user: Mapping[str, Any]) -> Headers:
    """The headers by which the options, or else a user of the kubeconfig, act as another.

    Raises:
        Unreachable: without a user to act as, or the kubeconfig's groups or extra are no lists.
    """
    name = access.act_as or str(user.get("as", ""))
    uid = access.act_as_uid or str(user.get("as-uid", ""))
    groups = access.act_as_groups or _texts(user.get("as-groups", []), "as-groups")
    field = "as-user-extra"
    extra = user.get(field, {})
    if not isinstance(extra, dict):
        raise Unreachable(f"{CANNOT_USE}: {field} is not a map of lists")
    headers = [("Impersonate-Uid", uid)] if uid else []
    headers += [("Impersonate-Group", group) for group in groups]
    for key, values in extra.items():
        header = f"Impersonate-Extra-{quote(str(key), safe=HEADER_CHARACTERS)}"
        headers += [(header, value) for value in _texts(values, f"{key} in {field}")]
    if name:
        return (("Impersonate-User", name), *headers)
    if headers:
        raise Unreachable("acting with a group, a UID or extra fields needs a user: add --as")
    return ()


def _texts(listed: object, field: str) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise Unreachable(f"{CANNOT_USE}: {field} is not a list of texts")
    return tuple(listed)


def _files(access: Access, environment: Mapping[str, str]) -> list[Path]:
    if access.kubeconfig:
        return [Path(access.kubeconfig)]
    if variable := environment.get("KUBECONFIG"):
        files = [Path(part) for part in dict.fromkeys(variable.split(os.pathsep)) if part]
    else:
        files = [Path(environment.get("HOME") or Path.home(), ".kube", "config")]
    return [file for file in files if file.exists()]


def _merge(files: list[Path]) -> tuple[str, tuple[Entries, Entries, Entries]]:
    """The current context and all entries; the first file with an entry has all of it."""
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
    """A file's entries of a kind by name, without empty fields, with absolute paths."""
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
        if os.sep in command:  # otherwise PATH has it
            found[name]["exec"] = found[name]["exec"] | {"command": str(folder / command)}
    return found


def _with_token(user: dict[str, Any]) -> dict[str, Any]:
    if "tokenFile" not in user:
        return user
    try:
        return user | {"token": Path(user["tokenFile"]).read_text(encoding="utf-8").strip()}
    except OSError as error:
        raise Unreachable(f"{CANNOT_USE}: {one_line(error)}") from error


def _nothing(access: Access, environment: Mapping[str, str], contexts: Entries) -> str:
    if contexts:
        choose = f"choose one by --context; {_choices(contexts)}"
        return f"the kubeconfig has no current context: {choose}"
    where = access.kubeconfig or environment.get("KUBECONFIG") or "~/.kube/config"
    return f"no context stands in {where}"


def _choices(contexts: Entries) -> str:
    return f"it has {', '.join(sorted(contexts)) or 'none'}"
