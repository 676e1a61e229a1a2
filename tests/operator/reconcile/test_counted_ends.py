import asyncio
import re

from elastic_pytorch_operator.api.resources import JOBS
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues

from tests.operator.builders import a_manifest
from tests.operator.running_controller import Running


def ends(running: Running) -> dict[str, float]:
    text = running.metrics.render(GaugeValues(leading=True)).decode()
    found = re.findall(
        r"^elastic_pytorch_jobs_(completed|failed)_total\{([^}]*)\} (\S+)$", text, re.MULTILINE
    )
    return {f"{how} {labels}": float(value) for how, labels, value in found if float(value)}


async def fail(running: Running) -> None:
    running.cluster.apply_job(a_manifest(activeDeadlineSeconds=1))
    await running.until(lambda: running.condition("Failed").startswith("DeadlineExceeded"))


async def test_job_that_completes_is_counted_once(running: Running) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until_pods(3)
    running.start_pods()
    await running.until(lambda: running.round_size() == 3)
    for pod in running.cluster.pods():
        running.hear(
            pod["metadata"]["name"], pod["metadata"]["uid"], {"state": "succeeded", "round": 1}
        )
    await running.until(lambda: running.condition("Complete").startswith("WorkersSucceeded"))
    await running.until(lambda: bool(ends(running)))
    running.cluster.apply_job(a_manifest(ttlSecondsAfterFinished=3600))  # has it planned again
    await asyncio.sleep(0.2)
    assert ends(running) == {'completed namespace="default"': 1}


async def test_job_that_ended_before_is_not_counted(running: Running) -> None:
    ended = {
        "state": "Complete",
        "conditions": [{"type": "Complete", "status": "True", "reason": "WorkersSucceeded"}],
    }
    running.watching = False
    version = running.cluster.apply_job(a_manifest("other"))["metadata"]["resourceVersion"]
    await running.cluster.patch(JOBS, "default", "other", version, {"status": ended}, "status")
    await running.begin_to_watch()
    await fail(running)
    await running.until(lambda: bool(ends(running)))
    assert ends(running) == {'failed namespace="default",reason="DeadlineExceeded"': 1}, (
        "as a new leader finds it"
    )
