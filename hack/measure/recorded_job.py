"""Jobs whose scripts record their progress in a file of a folder that nodes and host share."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_local.faults.steps import Step

from measure.commands import Commands
from measure.kind_cluster import CONTROL_PLANE, ROOT, SHARED, read_example

_MOUNTS = (
    f'{{{{range .Mounts}}}}{{{{if eq .Destination "{SHARED}"}}}}'
    "{{.Source}}{{end}}{{end}}"
)


class Told:
    def __init__(self, file: Path) -> None:
        self._file, self._read = file, 0

    def new(self) -> list[dict[str, Any]]:
        """The complete records since the last call."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(end)
        return objects_of(whole.decode(errors="replace"))


class Recorded:
    """The records of rank 0 and of processes without a rank, and the steps among them."""

    def __init__(self, file: Path) -> None:
        self._told = Told(file)
        self._lines: list[dict[str, Any]] = []

    def lines(self) -> list[dict[str, Any]]:
        self._lines += [line for line in self._told.new() if not line.get("RANK")]
        return self._lines

    def steps(self) -> list[Step]:
        return steps_of(self.lines())


def steps_of(lines: Iterable[Mapping[str, Any]]) -> list[Step]:
    """The recorded steps of rank 0, with groups in the order in which it joined them."""
    steps, group = list[Step](), 0
    for line in sorted(lines, key=lambda line: float(line["at"])):
        if line["what"] == "began":
            group += line["RANK"] == 0
        elif line["what"] == "step" and line["RANK"] == 0:
            steps.append(Step(line["at"], line["worker"], line["step"], line["WORLD_SIZE"], group))
    return steps


def objects_of(text: str) -> list[dict[str, Any]]:
    """The complete JSON objects in a text whose first key is "what", as json.dumps writes them."""
    begin, objects = '{"what": ', list[dict[str, Any]]()
    for rest in text.split(begin)[1:]:
        with suppress(ValueError, RecursionError):
            objects.append(json.JSONDecoder().raw_decode(begin + rest)[0])
    return objects


def scripts(paths: Iterable[str]) -> dict[str, Any]:
    files = {path.rpartition("/")[2]: (ROOT / path).read_text() for path in paths}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": files}


def recorded_job(
    name: str, folder: str, arguments: Sequence[str], *, stock: bool
) -> dict[str, Any]:
    """An example as a job that runs a script of the ConfigMap, and records in NAME.jsonl.

    The folder below /shared (see `shared_folder`) is /checkpoints there.
    """
    example = "stock-c10d/job.yaml" if stock else "all-reduce/elastic.yaml"
    job = read_example(ROOT / "examples" / example, folder)
    job["metadata"] = {"name": name}
    pod = job["spec"]["template"]["spec"]
    pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"][names.LABEL_JOB_NAME] = name
    pod["volumes"].append({"name": "scripts", "configMap": {"name": "scripts"}})
    container = pod["containers"][0]
    container["args"] = list(arguments)
    container["volumeMounts"].append({"name": "scripts", "mountPath": "/scripts"})
    container["env"] = [
        {"name": "OMP_NUM_THREADS", "value": "1"},
        {"name": "EVENTS", "value": f"/checkpoints/{name}.jsonl"},
        {"name": "WORKER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    return job


@asynccontextmanager
async def shared_folder(commands: Commands, name: str) -> AsyncIterator[Path]:
    """A folder below every node's /shared that any user may write to, removed at the end."""
    source = await commands.docker("inspect", "--format", _MOUNTS, CONTROL_PLANE)
    folder = Path(source.strip(), name)
    open_to_all(folder)
    try:
        yield folder
    finally:  # with the files of all users
        await commands.docker("exec", CONTROL_PLANE, "rm", "-rf", f"{SHARED}/{name}")


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
