"""Nodes of the kind cluster, which are Docker containers; each fault is undone at the end."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from measure.api import Api
from measure.cluster import ClusterDriver
from measure.commands import Commands
from measure.kind_cluster import CONTROL_PLANE, KUBECONFIG, KUBECTL

from tests.e2e.job_under_test import JobUnderTest, leading_operator, members_of, run_kubectl


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, capture_output=True, timeout=60)


def make(do: Callable[[ClusterDriver], Awaitable[object]]) -> None:

    async def run() -> None:
        async with Api.connect(KUBECONFIG) as api:
            await do(ClusterDriver(api, Commands(KUBECTL, KUBECONFIG), api.namespace))

    asyncio.run(run())


def kill_container(pod: dict[str, Any]) -> None:
    """Kills all processes of a pod's training container at once; other containers run on."""
    make(lambda driver: driver.kill_pod(pod))


@contextmanager
def killed(node: str) -> Iterator[None]:
    """A node without power: no process gets to say goodbye."""
    make(lambda driver: driver.kill_node(node))
    try:
        yield
    finally:
        make(lambda driver: driver.start_node(node))


@contextmanager
def frozen(node: str) -> Iterator[None]:
    """A node that nothing comes out of any more: no connection is closed."""
    make(lambda driver: driver.freeze_node(node))
    try:
        yield
    finally:
        make(lambda driver: driver.thaw_node(node))
        run_kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=100s")


@contextmanager
def without_controller_manager() -> Iterator[None]:
    """A control plane of which nothing is left but the API server, etcd and the scheduler."""
    manifest = (
        "/etc/kubernetes/manifests/kube-controller-manager.yaml",
        "/etc/kubernetes/kube-controller-manager.yaml",
    )
    pod = f"pod/kube-controller-manager-{CONTROL_PLANE}"
    docker("exec", CONTROL_PLANE, "mv", *manifest)
    try:
        run_kubectl("-n", "kube-system", "wait", "--for=delete", pod, "--timeout=100s")
        yield
    finally:
        docker("exec", CONTROL_PLANE, "mv", *reversed(manifest))
        run_kubectl("-n", "kube-system", "wait", "--for=create", pod, "--timeout=100s")
        run_kubectl("-n", "kube-system", "wait", "--for=condition=Ready", pod, "--timeout=100s")


@contextmanager
def cordoned(*nodes: str) -> Iterator[None]:
    run_kubectl("cordon", *nodes)
    try:
        yield
    finally:
        run_kubectl("uncordon", *nodes)


@contextmanager
def tainted(node: str, key: str, effect: str) -> Iterator[None]:
    run_kubectl("taint", "node", node, f"{key}=now:{effect}", "--overwrite")
    try:
        yield
    finally:
        run_kubectl("taint", "node", node, f"{key}:{effect}-", check=False)


@contextmanager
def labelled(node: str, key: str, value: str) -> Iterator[None]:
    run_kubectl("label", "node", node, f"{key}={value}", "--overwrite")
    try:
        yield
    finally:
        run_kubectl("label", "node", node, f"{key}-")


@contextmanager
def reporting(node: str, kind: str) -> Iterator[None]:
    _set_condition(
        node,
        {
            "type": kind,
            "status": "True",
            "reason": "HardwareFailure",
            "message": "[DCGM_FR_FAULTY_MEMORY]",
        },
    )
    try:
        yield
    finally:
        _set_condition(node, {"type": kind, "$patch": "delete"})


def _set_condition(node: str, condition: dict[str, str]) -> None:
    patch = json.dumps({"status": {"conditions": [condition]}})
    run_kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "-p", patch)


def worker_node_without_the_operator(job: JobUnderTest) -> tuple[str, str]:
    """A node without the leading operator, and its worker: not rank 0, whose log is read."""
    kept = {leading_operator()["spec"]["nodeName"]}
    leader, *others = members_of(job.status)
    for worker in others:
        if worker["node"] not in kept | {leader["node"]}:
            return worker["node"], worker["name"]
    raise AssertionError(
        f"no node carries a worker alone: workers {[leader, *others]}, the operator {kept}"
    )
