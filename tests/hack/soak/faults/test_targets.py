"""What each kind of fault is made to and how it is undone, on a cluster that only takes note."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_client.reading.job_view import view_job
from measure.watcher import LEASE, LEASES
from soak.faults.nodes import IMAGE, KEPT, RENAME
from soak.inject import how, perform
from soak.observe import Observer
from soak.plan import KINDS, Act, Fault
from soak.stage import NoTarget, Stage
from soak.timeline import Hit

GROUP = "elasticpytorch.dev"
OPERATORS = ["op-b", "op-a"]  # the first one leads


class Cluster:
    """Takes note of what is asked of it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if method != "GET":
            self.done.append(f"{method} {path.rpartition('/namespaces/')[2]} {json.dumps(body)[:40] if body else ''}".strip())
        if "secrets" in path:
            return {"data": {"trust.json": b64encode(b'{"serving": {"made_at": 0}}').decode()}}
        if "scale" in path:
            return {"spec": {"replicas": 2}}
        if path == f"{LEASES}/{LEASE}":
            return {"spec": {"holderIdentity": OPERATORS[0]}}
        return {"items": [a_pod(name, "", f"n{i}") for i, name in enumerate(OPERATORS)]}

    async def docker(self, *arguments: str) -> str:
        self.done.append(" ".join(("docker", *arguments)))
        return ""

    async def kubectl(self, *arguments: str) -> str:
        self.done.append(" ".join(("kubectl", *arguments)))
        return ""


def a_pod(name: str, job: str, node: str, index: int = 0) -> dict[str, Any]:
    labels = {f"{GROUP}/job-name": job, f"{GROUP}/worker-index": str(index)}
    container = {"name": "pytorch" if job else "operator", "containerID": f"containerd://c-{name}"}
    status = {"phase": "Running", "containerStatuses": [container]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node}, "status": status}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def stage(cluster: Cluster, tmp_path: Path) -> Stage:
    """Two jobs: `library` with two workers on two nodes, `plain` with one that has told of nothing yet."""
    observer = Observer(cluster, cluster, "ns", tmp_path, ["n0", "n1"])  # type: ignore[arg-type]
    pods = [a_pod("library-1", "library", "n1", index=1), a_pod("library-0", "library", "n0"), a_pod("plain-0", "plain", "n0")]
    observer.pods = {pod["metadata"]["name"]: pod for pod in pods}
    observer.lines["library"] = [{"what": "step", "worker": f"library-{i}", "pid": 7 + i, "generation": 1} for i in range(2)]
    for name in ("library", "plain"):
        observer.jobs[name] = view_job(
            {"metadata": {"name": name}, "spec": {"replicas": 2, "minReplicas": 1, "maxReplicas": 3}}
        )
        (tmp_path / name).mkdir()
    return Stage(cluster, cluster, observer, "ns", tmp_path, ["n0", "n1"], "control-plane")  # type: ignore[arg-type]


CTR = "ctr -n k8s.io task kill --all --signal SIGKILL"


@pytest.mark.parametrize(
    ("kind", "number", "done", "jobs", "pods", "node"),
    [
        (
            "kill-process",
            0,
            ["kubectl -n ns exec library-0 -c pytorch -- python3 -c import os; os.kill(7, 9)"],
            "library",
            "",
            "",
        ),
        ("kill-container", 1, [f"docker exec n1 {CTR} c-library-1"], "library", "library-1", ""),
        ("delete-pod", 2, ["DELETE ns/pods/library-0"], "library", "library-0", ""),
        ("delete-pod-now", 0, ['DELETE ns/pods/library-0 {"gracePeriodSeconds": 0}'], "library", "library-0", ""),
        (
            "scale",
            1,
            ['PATCH ns/elasticpytorchjobs/plain/scale {"spec": {"replicas": 1}}'],
            "plain",
            "",
            "",
        ),
        ("cordon", 0, ["kubectl cordon n0", "kubectl uncordon n0"], "library plain", "", ""),
        ("pause-node", 1, ["docker pause n1", "docker unpause n1"], "library", "", "n1"),
        ("pause-node", 0, ["docker pause n0", "docker unpause n0"], "", "", "n0"),
        ("kill-leader", 0, [f"docker exec n0 {CTR} c-op-b"], "", "op-b", ""),
        ("kill-operators", 0, [f"docker exec n0 {CTR} c-op-b", f"docker exec n1 {CTR} c-op-a"], "", "op-a op-b", ""),
        (
            "rotate-certificate",
            0,
            [
                'PATCH elastic-pytorch-system/secrets/elastic-pytorch-operator-tls {"data": {"trust.json": "eyJzZXJ2aW5nIjo',
                "DELETE elastic-pytorch-system/pods/op-b",
            ],
            "",
            "",
            "",
        ),
        ("kill-api", 0, ["docker exec control-plane sh -c pkill -KILL -x kube-apiserver"], "", "", ""),
        (
            "stop-dns",
            0,
            [f'PATCH kube-system/deployments/coredns/scale {{"spec": {{"replicas": {n}}}}}' for n in (0, 2)],
            "",
            "",
            "",
        ),
        ("refuse-writes", 0, [], "library", "", ""),
        (
            "remove-image",
            1,
            [f"docker exec n1 sh -ec {RENAME.format(old=old, new=new)}" for old, new in ((IMAGE, KEPT), (KEPT, IMAGE))],
            "",
            "",
            "",
        ),
    ],
)
async def test_targets(
    stage: Stage, cluster: Cluster, kind: str, number: int, done: list[str], jobs: str, pods: str, node: str
) -> None:
    hits: list[Hit] = []
    await perform(stage, Act(0.0, (Fault(kind, number, 0.0),)), hits, lambda _: None)
    assert cluster.done == done
    [hit] = hits
    assert (hit.jobs - {""}, hit.pods, hit.node) == (frozenset(jobs.split()), frozenset(pods.split()), node)
    assert "perhaps not" not in hit.what


async def test_jobs_of_a_fixed_size_are_not_scaled(stage: Stage) -> None:
    stage.observer.jobs["library"] = view_job({"metadata": {"name": "library"}, "spec": {"replicas": 2, "spares": 1}})
    target = await how("scale")(stage, Fault("scale", 0, 0.0))
    assert target.jobs == {"plain"}


async def test_writes_are_refused_and_allowed_again(stage: Stage) -> None:
    target = await how("refuse-writes")(stage, Fault("refuse-writes", 0, 1.0))
    await target.do()
    assert (stage.folder / "library").stat().st_mode & 0o777 == 0o555
    assert target.undo
    await target.undo()
    assert (stage.folder / "library").stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.family == "worker"])
async def test_without_a_worker_nothing_is_done(stage: Stage, cluster: Cluster, kind: str) -> None:
    stage.observer.pods.clear()
    with pytest.raises(NoTarget):
        await how(kind)(stage, Fault(kind, 0, 0.0))
    hits: list[Hit] = []
    await perform(stage, Act(0.0, (Fault(kind, 0, 0.0),)), hits, lambda _: None)
    assert (hits, cluster.done) == ([], [])


async def test_a_fault_that_fails_is_undone(stage: Stage) -> None:
    class Refusing(Cluster):
        async def kubectl(self, *arguments: str) -> str:
            await super().kubectl(*arguments)
            if arguments[0] == "cordon":
                raise OSError("no")
            return ""

    stage.commands = refusing = Refusing()  # type: ignore[assignment]
    hits: list[Hit] = []
    await perform(stage, Act(0.0, (Fault("cordon", 0, 0.0),)), hits, lambda _: None)
    assert refusing.done == ["kubectl cordon n0", "kubectl uncordon n0"]
    assert "perhaps not: OSError no" in hits[0].what
