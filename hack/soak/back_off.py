"""Ends the kubelets' back-off, which doubles with each end of a container, up to five minutes.

Otherwise, a long run would mostly wait for a scheduler, an API server or an operator.
"""

import asyncio
from contextlib import suppress

from measure.api import pods_path
from measure.cluster import container_statuses, operator_pods
from measure.engine import TROUBLE
from measure.kind_cluster import OPERATOR_NAMESPACE

from soak.stage import Stage

LOOK_SECONDS = 20.0  # which an outage may last, besides the time that a start takes
# A kubelet that restarts has no back-off. The kernel cuts names after 15 characters.
START_CONTROL_PLANE = """
for name in etcd kube-apiserver kube-controller kube-scheduler; do
  pgrep -x $name >/dev/null || exec systemctl restart kubelet
done
"""


async def end_back_off(stage: Stage) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        with suppress(*TROUBLE):
            await stage.driver.in_control_plane(START_CONTROL_PLANE)
        with suppress(*TROUBLE):
            await replace_waiting_operators(stage)


async def replace_waiting_operators(stage: Stage) -> None:
    """Deletes the operators' pods in back-off: the Deployment makes others, which start at once."""
    for pod in await operator_pods(stage.driver.api):
        states = (status.get("state", {}) for status in container_statuses(pod))
        reasons = [(state.get("waiting") or {}).get("reason") for state in states]
        if "CrashLoopBackOff" in reasons:
            path = pods_path(OPERATOR_NAMESPACE, pod["metadata"]["name"])
            await stage.driver.api.ask("DELETE", path)
