"""One template for the workers, from those of the Master and the Worker."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.remarks import Remarks
from elastic_pytorch_client.migration.sources.training_pods import TrainingPods, read_training_pods

Manifest = dict[str, Any]

GIVEN = "only the Master has it. It is given to all workers, for each of them can be rank 0"
SHARED = f"{GIVEN}. A claim must allow ReadWriteMany if the workers run on several nodes"
IDENTITY = f"{GIVEN}, and needs the same rights to save checkpoints"
ACCOUNT = ("serviceAccountName", "serviceAccount")
TOKEN = "automountServiceAccountToken"
# The migration adds them itself.
ADDED = (f".spec.{TOKEN}", ".env[PYTHONUNBUFFERED]")

DIFFERENT = "differs from the Worker's. Workers are alike, and the Worker's is taken"
DROPPED = "only the Master has it, and it is dropped: workers are alike"


def read_replicas(
    templates: Sequence[tuple[str, Mapping[str, Any]]],
    remarks: Remarks,
    entrypoint: Sequence[str],
    container: str = "",
) -> TrainingPods:
    """The pods of the Worker's template, which is the first, with what only the Master's has.

    One of them may be missing. Without a name of their container, it is known by its looks.
    """
    own = Remarks()
    pods, *others = [
        read_training_pods(path, template, own if place else remarks, entrypoint, container)
        for place, (path, template) in enumerate(templates)
    ]
    remarks.add_unsaid(own)
    for (path, _), master in zip(templates[1:], others, strict=True):
        _merge_templates(path, master.template, pods.template, remarks)
    return pods


def _merge_templates(path: str, master: Manifest, worker: Manifest, remarks: Remarks) -> None:
    """Gives the Worker's template the Master's volumes and account; remarks on the rest."""
    pod, other = worker["spec"], master["spec"]
    _add_named(f"{path}.spec.volumes", pod, other, "volumes", "name", remarks)
    _add_account(f"{path}.spec", pod, other, remarks)
    own = {container.get("name"): container for container in pod["containers"]}
    for container in other["containers"]:
        twin = own.get(container.get("name"))
        if twin is not None:
            place = f"{path}.spec.containers[{container.get('name')}].volumeMounts"
            _add_named(place, twin, container, "volumeMounts", "mountPath", remarks)
    for place, dropped in _differences(master, worker, ""):
        if not place.endswith(ADDED):
            remarks.add(f"{path}{place}", DROPPED if dropped else DIFFERENT)


def _add_account(path: str, into: Manifest, source: Manifest, remarks: Remarks) -> None:
    if any(into.get(field) for field in ACCOUNT) or not any(source.get(field) for field in ACCOUNT):
        return
    for field in (*ACCOUNT, TOKEN):
        if field in source:
            into[field] = source[field]
    remarks.add(f"{path}.{next(field for field in ACCOUNT if source.get(field))}", IDENTITY)


def _add_named(
    path: str, into: Manifest, source: Manifest, field: str, key: str, remarks: Remarks
) -> None:
    known = {item.get(key) for item in into.get(field) or ()}
    for item in source.get(field) or ():
        if item.get(key) not in known:
            into[field] = [*(into.get(field) or []), item]
            remarks.add(f"{path}[{item.get('name')}]", SHARED)


def _differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, bool]]:
    """The paths at which two templates differ, and whether only the first has a value."""
    if one == other:
        return
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _differences(one.get(key), other.get(key), f"{path}.{key}")
        return
    named = _by_name(one), _by_name(other)
    if named[0] is not None and named[1] is not None:
        for name in [*named[0], *(name for name in named[1] if name not in named[0])]:
            yield from _differences(named[0].get(name), named[1].get(name), f"{path}[{name}]")
        return
    if one is None and (path.startswith(".spec.volumes[") or ".volumeMounts[" in path):
        return  # what only the Worker mounts is no loss
    yield path, other is None


def _by_name(items: Any) -> Manifest | None:
    if items is None:
        return {}
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        return None
    keys = [item.get("mountPath") or item.get("name") for item in items]
    return (
        dict(zip(keys, items, strict=True)) if all(keys) and len(set(keys)) == len(keys) else None
    )
