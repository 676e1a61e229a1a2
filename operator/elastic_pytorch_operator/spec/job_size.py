"""How large a job may be: a schema that leaves fields open admits whatever etcd does."""

import json
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.fields import InvalidJob

MAX_BYTES = 131_072  # of a spec as JSON, and of a job in all; a whole PodSpec rarely has 20,000
MAX_VALUES = 10_000  # in a spec: `{},` has 3 bytes as JSON, and 72 in memory
MAX_DEPTH = 64  # of objects and lists in each other; a PodSpec has less than 20
MAX_PLAIN = 253  # characters of a kept text
PLAIN_FIELDS = ("cleanPodPolicy", "managedBy", "replicas", "suspend", "ttlSecondsAfterFinished")


class LargeSpec(dict[str, Any]):
    """Of a spec that is too large, the fields that say what becomes of the job, and the fault."""

    def __init__(self, spec: Manifest, problem: InvalidJob) -> None:
        backend = spec.get("rendezvous")
        kept = {name: spec[name] for name in PLAIN_FIELDS if _is_plain(spec.get(name))}
        if isinstance(backend, Mapping) and _is_plain(backend.get("backend")):
            kept["rendezvous"] = {"backend": backend["backend"]}
        super().__init__(kept)
        self.path, self.words = problem.path, str(problem).removeprefix(f"{problem.path}: ")


def check_size(fields: Manifest, path: str) -> None:
    """Refuses fields that exceed MAX_BYTES, MAX_VALUES or MAX_DEPTH, and those of a LargeSpec.

    It looks at no more than MAX_VALUES values.
    """
    if isinstance(fields, LargeSpec):
        raise InvalidJob(fields.path, fields.words)
    count = len(fields)
    for name, value in fields.items():
        level = [value]
        for _ in range(MAX_DEPTH + 1):
            holders = [item for item in level if isinstance(item, (dict, list))]
            count += sum(map(len, holders))
            if count > MAX_VALUES:
                raise InvalidJob(path, f"must hold at most {MAX_VALUES} values")
            level = [
                inner
                for item in holders
                for inner in (item.values() if isinstance(item, dict) else item)
            ]
            if not level:
                break
        else:
            raise InvalidJob(
                f"{path}.{name}", f"must not hold more than {MAX_DEPTH} levels of objects and lists"
            )
    if (size := size_of(fields)) > MAX_BYTES:
        raise InvalidJob(path, f"must have at most {MAX_BYTES} bytes as JSON, not {size}")


def size_of(fields: Manifest) -> int:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode(errors="replace"))


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= MAX_PLAIN)
