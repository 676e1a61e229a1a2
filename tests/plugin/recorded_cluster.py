"""A cluster that holds what was recorded of a real one at one moment.

Each file in recorded/ is what the kind cluster said of one job: `young`, `lost` (a worker's pod is
gone) and `whole` are one char-lm at different moments; the others are jobs that something is the
matter with. All have the nodes of `nodes`. Fields that the client does not read are left out.
"""

import copy
import functools
import itertools
import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from elastic_pytorch_client.errors import EpjError, NoSuchJob, NotFound, Refused
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.reading.text import parse_time
from elastic_pytorch_client.reading.timeline import JobEvent, read_events

Object = dict[str, Any]
RECORDED = Path(__file__).parent / "recorded"
BREAK = "BREAK"  # in a script: the connection ends here


@functools.cache
def _read(name: str) -> str:
    return (RECORDED / f"{name}.json").read_text()


def recorded(name: str) -> Object:
    """What was recorded: `job`, `pods`, `events`, `nodes`."""
    found: Object = json.loads(_read(name))
    return {**found, "nodes": json.loads(_read("nodes"))}


def job_of(name: str) -> JobView:
    """A recorded job, as a view."""
    return view_job(recorded(name)["job"])


def events_of(name: str) -> list[JobEvent]:
    """A recorded job's story."""
    found = recorded(name)
    about = [e for e in found["events"] if e["involvedObject"]["kind"] == "ElasticPyTorchJob"]
    return read_events(about, found["job"]["metadata"]["uid"])


def moment_of(name: str) -> datetime:
    """The time of day just after a recording."""
    found = recorded(name)
    texts = [e.get("eventTime") or e.get("lastTimestamp") for e in found["events"]]
    texts += [c["lastTransitionTime"] for c in found["job"]["status"]["conditions"]]
    return max(time for text in texts if (time := parse_time(text))) + timedelta(seconds=4)


class RecordedCluster:
    """A Cluster that is none.

    Args:
        names: of recordings.

    Attributes:
        calls: the verbs that changed something, with their arguments.
        logs: lines of each pod, with timestamps.
        faults: what the next use of a verb raises.
        said: what each command in a pod writes.
        script: what watches tell after what there is: manifests, BREAK, or an error that the
            connection ends with.
    """

    namespace, context = "team", ""

    def __init__(self, *names: str) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.logs: dict[str, list[str]] = {}
        self.faults: dict[str, list[EpjError]] = {}
        self.script: list[Object | str | EpjError] = []
        self.said = "57\n"
        self._jobs: dict[str, Object] = {}
        self._pods: list[Object] = []
        self._events: list[Object] = []
        self._nodes: list[Object] = []
        self._versions = itertools.count(10**9)
        self._lock = threading.Lock()
        for name in names:
            found = recorded(name)
            self._jobs[found["job"]["metadata"]["name"]] = found["job"]
            self._pods += found["pods"]
            self._events += found["events"]
            self._nodes = found["nodes"]

    def put(self, job: Object) -> None:
        """Has a job be as it says."""
        with self._lock:
            metadata = job["metadata"]
            metadata["resourceVersion"] = str(next(self._versions))
            self._jobs[metadata["name"]] = copy.deepcopy(job)

    def remove(self, name: str) -> None:
        """Has a job be gone."""
        with self._lock:
            self._jobs.pop(name, None)

    def get_job(self, namespace: str, name: str) -> Object:
        self._check("get_job")
        with self._lock:
            if name not in self._jobs or namespace != self.namespace:
                raise NoSuchJob(
                    f'there is no ElasticPyTorchJob "{name}" in namespace "{namespace}"'
                )
            return copy.deepcopy(self._jobs[name])

    def list_jobs(self, namespace: str | None, selector: str = "") -> list[Object]:
        """Knows selectors of one label."""
        self._check("list_jobs")
        key, _, value = selector.partition("=")
        found = [
            job
            for job in self._jobs.values()
            if not key or (job["metadata"].get("labels") or {}).get(key) == value
        ]
        return copy.deepcopy(found) if namespace in (None, self.namespace) else []

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = 60
    ) -> Iterator[tuple[str, Object]]:
        self._check("watch_jobs")
        for job in self.list_jobs(namespace):
            if name in (None, job["metadata"]["name"]):
                yield "ADDED", job
        while self.script:
            told = self.script.pop(0)
            if isinstance(told, EpjError):
                raise told
            if isinstance(told, str):
                return
            self.put(told)
            yield "MODIFIED", self._jobs[told["metadata"]["name"]]

    def create_job(self, namespace: str, manifest: Mapping[str, Any]) -> Object:
        self._check("create_job")
        made = copy.deepcopy(dict(manifest))
        if made["metadata"]["name"] in self._jobs:
            raise Refused(f'elasticpytorchjobs "{made["metadata"]["name"]}" already exists')
        made["metadata"] |= {"namespace": namespace, "uid": "new", "generation": 1}
        self.put(made)
        return made

    def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        self._check("patch_job")
        self.calls.append(("patch", name, json.dumps(patch)))
        job = self.get_job(namespace, name)
        job["spec"] |= patch.get("spec", {})
        if annotations := patch.get("metadata", {}).get("annotations"):
            job["metadata"]["annotations"] = (
                job["metadata"].get("annotations") or {}
            ) | annotations
        self.put(job)
        return job

    def scale_job(self, namespace: str, name: str, replicas: int) -> None:
        self._check("scale_job")
        self.calls.append(("scale", name, str(replicas)))
        job = self.get_job(namespace, name)
        job["spec"]["replicas"] = replicas
        job["metadata"]["generation"] += 1
        self.put(job)

    def delete_job(self, namespace: str, name: str) -> None:
        self._check("delete_job")
        self.get_job(namespace, name)
        self.calls.append(("delete", name))
        self.remove(name)

    def list_pods(self, namespace: str, job: str, indexes: Collection[int] = ()) -> list[Object]:
        self._check("list_pods")
        own = [
            p
            for p in copy.deepcopy(self._pods)
            if p["metadata"]["labels"]["elasticpytorch.dev/job-name"] == job
        ]
        return [
            p
            for p in own
            if not indexes
            or int(p["metadata"]["labels"]["elasticpytorch.dev/worker-index"]) in indexes
        ]

    def list_nodes(self) -> list[Object]:
        self._check("list_nodes")
        return copy.deepcopy(self._nodes)

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        self._check("run_in_pod")
        self.calls.append(("exec", pod, container, *command[:2]))
        return self.said

    def list_events(self, namespace: str, kind: str, name: str) -> list[Object]:
        self._check("list_events")
        about = {"kind": kind, "name": name}
        return [
            e for e in copy.deepcopy(self._events) if about.items() <= e["involvedObject"].items()
        ]

    def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: str | None = None,
    ) -> Iterator[str]:
        self._check("pod_log")
        if pod not in self.logs:
            raise NotFound(f'pods "{pod}" not found')
        lines = [
            line for line in self.logs[pod] if not since or line[: len(since) - 1] >= since[:-1]
        ]
        yield from (
            lines if tail_lines is None else lines[len(lines) - min(len(lines), tail_lines) :]
        )

    def _check(self, verb: str) -> None:
        if self.faults.get(verb):
            raise self.faults[verb].pop(0)
