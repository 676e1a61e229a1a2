"""Faults of the operator, the API server, etcd and the cluster's DNS."""

import base64
import json
import time
from functools import partial

from measure import engine
from measure.api import pods_path
from measure.engine import Target
from measure.kind_cluster import CONTROL_PLANE, OPERATOR_NAMESPACE

from soak.perform import pick
from soak.plan import Fault
from soak.stage import Stage

DEPLOYMENT = "deployment/elastic-pytorch-operator"
SECRET = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets/elastic-pytorch-operator-tls"
SERVING_SECONDS = 61 * 86_400.0  # the operator renews a certificate after 60 days
SLOW = (
    "for i in $(seq {turns}); do "
    "pkill -STOP -x etcd; sleep 0.5; pkill -CONT -x etcd; sleep 0.5; done"
)


async def kill_operators(stage: Stage, fault: Fault) -> Target:
    operators = await stage.driver.operators()
    pick(fault.pick, operators, "operator that runs")
    killed = operators[:1] if fault.kind == "kill-leader" else operators
    return engine.kill_pods(stage.driver, killed)


async def roll_operator(stage: Stage, _: Fault) -> Target:
    rollout = partial(stage.driver.commands.kubectl, "-n", OPERATOR_NAMESPACE, "rollout")
    return Target(
        f"kubectl rollout restart {DEPLOYMENT}",
        lambda: rollout("restart", DEPLOYMENT),
        lambda: rollout("status", DEPLOYMENT, "--timeout=300s"),
    )


async def rotate_certificate(stage: Stage, _: Fault) -> Target:
    """Ages the certificate and deletes the leader: agents must trust the next leader's new one."""
    leader = (await stage.driver.operators())[:1]

    async def age() -> None:
        secret = await stage.driver.api.ask("GET", SECRET)
        trust = json.loads(base64.b64decode(secret["data"]["trust.json"]))
        trust["serving"]["made_at"] = time.time() - SERVING_SECONDS
        data = {"trust.json": base64.b64encode(json.dumps(trust).encode()).decode()}
        await stage.driver.api.ask("PATCH", SECRET, {"data": data})
        for pod in leader:
            path = pods_path(OPERATOR_NAMESPACE, pod["metadata"]["name"])
            await stage.driver.api.ask("DELETE", path)

    return Target("the operator's certificate is two months old, and its leader is deleted", age)


async def on_control_plane(stage: Stage, fault: Fault) -> Target:
    run = stage.driver.in_control_plane
    match fault.kind:
        case "freeze-api":
            # The kubelet may have started another.
            command = "pkill -CONT -x kube-apiserver || true"
            return Target(
                "SIGSTOP to the API server",
                lambda: run("pkill -STOP -x kube-apiserver"),
                lambda: run(command),
            )
        case "kill-api":
            return Target("SIGKILL to the API server", lambda: run("pkill -KILL -x kube-apiserver"))
    turns = max(1, round(fault.seconds))
    slow = ("exec", "--detach", CONTROL_PLANE, "sh", "-c", SLOW.format(turns=turns))
    return Target(
        "etcd stops for half of each second",
        lambda: stage.driver.commands.docker(*slow),
        lambda: run("pkill -CONT -x etcd"),
    )


async def stop_dns(stage: Stage, _: Fault) -> Target:
    path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns/scale"
    replicas = (await stage.driver.api.ask("GET", path))["spec"]["replicas"] or 2

    async def scale(number: int) -> None:
        await stage.driver.api.ask("PATCH", path, {"spec": {"replicas": number}})

    return Target("coredns has no replicas", lambda: scale(0), lambda: scale(replicas))
