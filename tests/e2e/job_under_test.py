"""The kind cluster and a job on it, as tests see them."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml
from elastic_pytorch_operator.api.conditions import is_true
from measure.kind_cluster import KUBECTL, OPERATOR_NAMESPACE

from tests.e2e.api_requests import KUBECONFIG, Resource, read_log
from tests.waiting import MAX_PAUSE_SECONDS, until

# Plain torchrun code, and the same with the training library; both train until the test ends.
ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
ENDLESS_ELASTIC = [
    "/examples/all-reduce/train_elastic.py",
    "--checkpoint-dir",
    "/checkpoints",
    "--steps",
    "100000",
]
SLICES = "kubernetes.io/service-name=elastic-pytorch-operator"
# Tests say how long something takes on a machine that is not busy. Waits are longer by this factor.
PATIENCE = 3
LIMIT = re.compile(r"^--timeout=(\d+)s$")


def run_kubectl(
    *arguments: str,
    input: str | None = None,  # noqa: A002  named as in subprocess.run
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs kubectl on the test cluster; its words are in the error if it fails."""
    patient = [
        LIMIT.sub(lambda limit: f"--timeout={PATIENCE * int(limit[1])}s", argument)
        for argument in arguments
    ]
    command = [str(KUBECTL), f"--kubeconfig={KUBECONFIG}", *patient]
    done = subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=PATIENCE * 120, check=False
    )
    if check and done.returncode:
        raise AssertionError(
            f"kubectl {' '.join(arguments)} failed: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done


def until_established(definition: str) -> None:
    """Waits until the API server knows a kind.

    `kubectl wait` and a filter of JSONPath fail if the definition's conditions are null yet.
    """

    def is_established() -> bool:
        found = json.loads(run_kubectl("get", "crd", definition, "-o", "json").stdout)
        return is_true(found.get("status") or {}, "Established")

    until(is_established, f"the kind of {definition}")


def found_by_agents() -> list[str]:
    """The operator's pods that the agents' Service leads to: one, the leader."""
    slices = Resource("discovery.k8s.io/v1", "endpointslices", OPERATOR_NAMESPACE)
    endpoints = [there for found in slices.list(SLICES) for there in found.get("endpoints") or ()]
    return [(there.get("targetRef") or {}).get("name", "") for there in endpoints]


def leading_operator(other_than: str = "") -> dict[str, Any]:
    """The operator's pod that leads agents, other than the one that led before; waits for it."""
    pods = Resource("v1", "pods", OPERATOR_NAMESPACE)

    def leaders() -> list[dict[str, Any]]:
        found = [name for name in found_by_agents() if name != other_than]
        answers = [pods.get(name) for name in found] if len(found) == 1 else []
        return [answer.body for answer in answers if answer.code < 300]

    return until(leaders, lambda: f"one leader: {found_by_agents()}")[0]


def operator_log(*, tail: int = -1) -> str:
    return run_kubectl(
        "-n", OPERATOR_NAMESPACE, "logs", leading_operator()["metadata"]["name"], f"--tail={tail}"
    ).stdout


def ask_operator(pod: str, path: str) -> str:
    """What an operator answers to a probe or a scrape, through the API server."""
    return run_kubectl(
        "get", "--raw", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}:8781/proxy/{path}"
    ).stdout


def members_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    """What a status says of the workers in the current round, by rank."""
    ranked = [worker for worker in status.get("workers", []) if "rank" in worker]
    return sorted(ranked, key=lambda worker: worker["rank"])


@dataclass
class JobUnderTest:
    name: str
    namespace: str

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return run_kubectl("-n", self.namespace, *arguments, check=check).stdout

    def get(self) -> dict[str, Any]:
        answer = Resource("elasticpytorch.dev/v1alpha1", "elasticpytorchjobs", self.namespace).get(
            self.name
        )
        assert answer.code < 300, answer.words
        return answer.body

    def start_again_in(self, namespace: str, **changes: Any) -> "JobUnderTest":
        """Starts a job of this name and spec, with changed fields, in another namespace."""
        found = self.get()
        manifest = {key: found[key] for key in ("apiVersion", "kind")}
        manifest |= {"metadata": {"name": self.name}, "spec": {**found["spec"], **changes}}
        run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
        return JobUnderTest(self.name, namespace)

    @property
    def status(self) -> dict[str, Any]:
        return self.get().get("status", {})

    def interruptions(self) -> list[dict[str, Any]]:
        """The changes of the group that interrupted the training, oldest first."""
        return [entry for entry in self.status.get("history", []) if "seconds" in entry]

    def condition(self, type_: str) -> dict[str, Any]:
        return next((c for c in self.status.get("conditions", []) if c["type"] == type_), {})

    def pods(self) -> list[dict[str, Any]]:
        return Resource("v1", "pods", self.namespace).list(
            f"elasticpytorch.dev/job-name={self.name}"
        )

    def members(self) -> list[str]:
        """The pods in the current round, by rank."""
        return [worker["name"] for worker in members_of(self.status)]

    def events(self, reason: str, *words: str) -> list[str]:
        """The messages of the job's events with a reason, and with some words each."""
        selector = f"involvedObject.name={self.name},reason={reason}"
        found = json.loads(
            self.kubectl("get", "events", "--field-selector", selector, "-o", "json")
        )["items"]
        return [
            event["message"] for event in found if all(word in event["message"] for word in words)
        ]

    def until_event(self, reason: str, *words: str) -> str:
        """Waits for such an event, which is sent beside the status; returns its message."""
        return until(
            lambda: self.events(reason, *words),
            lambda: f"an event {reason} with {words}: {self.events(reason)}",
        )[-1]

    def logs(self, pod: str) -> list[str]:
        log = read_log(self.namespace, pod)
        return (self.kubectl("logs", pod, check=False) if log is None else log).splitlines()

    def until(
        self, fulfilled: Callable[[dict[str, Any]], bool], what: str, seconds: float = 90.0
    ) -> dict[str, Any]:
        [status] = until(
            lambda: [status for status in [self.status] if fulfilled(status)],
            lambda: f"{what}; the status is\n{yaml.safe_dump(self.status)}",
            PATIENCE * seconds,
            MAX_PAUSE_SECONDS,  # each is a request to the API server
        )
        return status

    def until_world(self, world: int, seconds: float = 90.0) -> dict[str, Any]:
        return self.until(
            lambda status: status.get("worldSize") == world, f"a world of {world}", seconds
        )

    def until_complete(self, seconds: float = 180.0) -> str:
        """Waits until a job has completed; returns what its remaining pods have printed."""
        status = self.until(
            lambda status: status.get("state") in ("Complete", "Failed"), "the end", seconds
        )
        text = "\n".join(line for pod in self.pods() for line in self.logs(pod["metadata"]["name"]))
        assert status["state"] == "Complete", (
            f"{self.name}: {status.get('conditions')}\n{text[-3000:]}"
        )
        return text

    def until_replaced(self, worker: str, world: int, seconds: float = 120.0) -> dict[str, Any]:
        """Waits for a group of some size without a worker: both are read from one status."""
        return self.until(
            lambda status: (
                status.get("worldSize") == world
                and worker not in {each["name"] for each in members_of(status)}
            ),
            f"a world of {world} without {worker}",
            seconds,
        )

    def until_stepping(
        self, pod: str, world: int, seconds: float = 60.0, *, after: int = 0
    ) -> None:
        """Waits until rank 0's log tells, behind earlier lines, of a step of a world size."""
        until(
            lambda: any(
                line.startswith("STEP") and f"world={world} " in line
                for line in self.logs(pod)[after:]
            ),
            f"a step of {pod} with a world of {world}",
            PATIENCE * seconds,
        )


StartJob = Callable[..., JobUnderTest]


def start_whole(start_job: StartJob, **options: Any) -> JobUnderTest:
    """A job whose wanted workers train: a new one, or that of an earlier test of the module.

    What tests have changed of its spec is as it was, but for fields that it did not have.
    """
    job = start_job(**options)
    if job.status.get("state") in ("Complete", "Failed"):
        job.kubectl("delete", "epj", job.name)
        job = start_job(**options)
    workers = job.get()["spec"]["replicas"]
    job.until_world(workers)
    job.until_stepping(job.members()[0], workers)
    return job


def groups_told(job: JobUnderTest, pod: str) -> list[str]:
    """The lines in which a pod's processes tell rank and world: one for each group."""
    return [line for line in job.logs(pod) if line.startswith("INIT")]
