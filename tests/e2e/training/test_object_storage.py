"""A job with checkpoints in a bucket and no volume: after all pods, the last object goes on."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from measure.kind_cluster import read_example
from measure.object_storage import BUCKET, COMMAND, IMAGE, PORT, SERVER, keep_in_bucket, server

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.e2e.training.test_training_library import steps, until_steps_of_world
from tests.paths import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture(scope="module")
def image() -> str:
    subprocess.run([ROOT / "hack" / "images" / "object-storage.sh"], check=True, timeout=900)
    return IMAGE


@pytest.fixture
def bucket(namespace: str, image: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The bucket's URL of an S3 server in a lasting pod, whose command is the parameter."""
    make = (
        "import urllib.request as r; "
        f"r.urlopen(r.Request('http://127.0.0.1:{PORT}/{BUCKET}', method='PUT'))"
    )
    items = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": server(getattr(request, "param", COMMAND))}
    )
    run_kubectl("-n", namespace, "apply", "-f", "-", input=items)
    run_kubectl("-n", namespace, "wait", f"pod/{SERVER}", "--for=condition=Ready", "--timeout=60s")
    run_kubectl("-n", namespace, "exec", SERVER, "--", "python3", "-c", make)
    yield f"s3://{BUCKET}"
    run_kubectl(
        "-n",
        namespace,
        "delete",
        f"pod/{SERVER}",
        f"service/{SERVER}",
        "--ignore-not-found",
        "--wait=false",
    )


def without_volumes(pod: dict[str, Any]) -> None:
    """Leaves a job's pods a folder for temporary files only, and lets them find the bucket."""
    keep_in_bucket(pod)
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] == "tmp"]
    [container] = pod["containers"]
    container["volumeMounts"] = [
        mount for mount in container["volumeMounts"] if mount["name"] == "tmp"
    ]


def test_all_pods_go_at_once_and_the_last_object_is_found(namespace: str, bucket: str) -> None:
    manifest = read_example(ROOT / "examples" / "char-lm" / "job-elastic.yaml")
    pod = manifest["spec"]["template"]["spec"]
    without_volumes(pod)
    [container] = pod["containers"]
    container["args"] = [
        container["args"][0],
        "--checkpoint-dir",
        f"{bucket}/runs",
        "--checkpoint-every",
        "1",
        "--steps",
        "300",
    ]
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
    job = JobUnderTest(manifest["metadata"]["name"], namespace)
    status = job.until(lambda status: saved(status) >= 10, "a checkpoint in the bucket", 120)
    kept = saved(status)
    names = [pod["metadata"]["name"] for pod in job.pods()]
    job.kubectl("delete", "pod", *names, "--grace-period=0", "--force")

    text = job.until_complete(240)
    starts = [
        int(line.split()[3].partition("/")[0])
        for line in text.splitlines()
        if line.startswith("start at step ")
    ]
    assert starts and min(starts) >= kept, (
        f"{starts}: it goes on from a step of the bucket, of which {kept} was there"
    )
    assert "checkpoint checkpoint-g" in text
    assert "no checkpoint: " not in text


def objects(namespace: str) -> str:
    ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{PORT}/{BUCKET}?list-type=2').read().decode())"
    return run_kubectl("-n", namespace, "exec", SERVER, "--", "python3", "-c", ask).stdout


# Passes on to the server what clients send, 1 MB in a second for all together. {listen} and
# {forward} are ports.
THROTTLE = """
import asyncio, time
free_at = 0.0
async def copy(reader, writer, throttled):
    global free_at
    while data := await reader.read(65536):
        if throttled:
            free_at = max(free_at, time.monotonic()) + len(data) / 1e6
            await asyncio.sleep(free_at - time.monotonic())
        writer.write(data)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    there, back = await asyncio.open_connection("127.0.0.1", {forward})
    both = copy(reader, back, True), copy(there, writer, False)
    await asyncio.gather(*both, return_exceptions=True)
async def main():
    while True:
        try:
            await asyncio.open_connection("127.0.0.1", {forward})
            break
        except OSError:
            await asyncio.sleep(0.1)
    await (await asyncio.start_server(serve, "0.0.0.0", {listen})).serve_forever()
asyncio.run(main())
"""
LAST = 400
IN_BUCKET = f"s{LAST:09}"


def saved(status: dict[str, Any]) -> int:
    return (status.get("progress") or {}).get("checkpointStep") or 0


def saving(status: dict[str, Any]) -> list[str]:
    return [
        worker["stateSince"]
        for worker in status.get("workers") or ()
        if worker["state"] == "Saving"
    ]


def start_in_bucket(
    start_job: StartJob, bucket: str, *options: str, **spec: object
) -> JobUnderTest:
    args = [
        "/examples/all-reduce/train_elastic.py",
        "--checkpoint-dir",
        f"{bucket}/runs",
        "--steps",
        str(LAST),
        *options,
    ]
    return start_job(file="elastic.yaml", args=args, change_pod=without_volumes, **spec)


def until_saving(job: JobUnderTest) -> dict[str, Any]:
    """Takes the bucket away once it has a checkpoint; returns the status after the steps."""
    job.until(saved, "a checkpoint in the bucket", 180)
    run_kubectl("-n", job.namespace, "delete", f"service/{SERVER}")
    status = job.until(saving, "the end of the steps", 240)
    assert IN_BUCKET not in objects(job.namespace)
    return status


def until_degraded(job: JobUnderTest, reason: str) -> dict[str, Any]:
    return job.until(lambda _: job.condition("Degraded").get("reason") == reason, reason, 240)


def return_bucket(namespace: str) -> None:
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(server()[1]))


def test_a_job_whose_bucket_is_away_at_its_end_is_complete_once_its_last_step_is_there(
    start_job: StartJob, namespace: str, bucket: str
) -> None:
    job = start_in_bucket(start_job, bucket)
    since = saving(until_saving(job))
    status = until_degraded(job, "CheckpointsFailing")
    assert saving(status) == since
    assert job.condition("Running")["reason"] == "Saving"
    assert len(job.members()) == 3

    *_, victim = job.members()
    job.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    job.until_replaced(victim, 3)
    assert IN_BUCKET not in objects(namespace)
    return_bucket(namespace)
    status = job.until(lambda status: status["state"] in ("Complete", "Failed"), "the end", 240)
    assert (status["state"], status.get("failures", 0)) == ("Complete", 0), (
        "the lost pod is no failure of the job"
    )
    assert IN_BUCKET in objects(namespace)


def test_a_job_that_is_suspended_while_its_bucket_is_away_goes_on_later(
    start_job: StartJob, namespace: str, bucket: str
) -> None:
    job = start_in_bucket(start_job, bucket)
    until_saving(job)
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    job.until(lambda status: status["state"] == "Suspended" and not job.pods(), "the suspension")
    assert IN_BUCKET not in objects(namespace)
    return_bucket(namespace)
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"suspend": false}}')
    job.until(lambda status: status["state"] == "Complete", "the end", 240)
    assert IN_BUCKET in objects(namespace)


def test_a_job_without_ttl_is_kept_until_its_last_step_is_in_the_bucket(
    start_job: StartJob, namespace: str, bucket: str
) -> None:
    job = start_in_bucket(start_job, bucket, ttlSecondsAfterFinished=0)
    until_saving(job)
    until_degraded(job, "CheckpointsFailing")
    return_bucket(namespace)
    run_kubectl("-n", namespace, "wait", f"epj/{job.name}", "--for=delete", "--timeout=240s")
    assert IN_BUCKET in objects(namespace)


SLOW = (
    f"{' '.join(COMMAND[:-1])} {PORT + 1} & exec python3 -c "
    f"'{THROTTLE.format(listen=PORT, forward=PORT + 1)}'"
)


@pytest.mark.parametrize("bucket", [["sh", "-c", SLOW]], indirect=True, ids=["throttled"])
def test_a_last_step_that_takes_longer_than_pods_have_to_stop_is_waited_for(
    start_job: StartJob, namespace: str, bucket: str
) -> None:
    job = start_in_bucket(start_job, bucket, "--width", "1024")  # 25 MB, and pods have 10 seconds
    until_degraded(job, "CheckpointsSlow")
    job.until(saving, "the end of the steps", 240)
    assert IN_BUCKET not in objects(namespace)
    job.kubectl("delete", "pod", job.members()[-1], "--wait=false")
    job.until(lambda status: status["state"] == "Complete", "the end", 240)
    assert IN_BUCKET in objects(namespace)


def test_changes_a_loss_and_a_suspension_cost_a_step_at_most(
    start_job: StartJob, bucket: str
) -> None:
    job = start_in_bucket(start_job, bucket, "--steps", "100000")
    job.until_world(3)
    leader, _, victim = job.members()
    job.until_stepping(leader, 3)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=4")
    job.until_stepping(leader, 4)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
    until_steps_of_world(job, leader, [3, 4, 3])
    numbers = [number for number, _, _ in steps(job, leader)]
    assert numbers == list(range(1, len(numbers) + 1)), "each step was computed once"

    job.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    job.until_replaced(victim, 3)
    numbers = [number for number, _, _ in steps(job, leader)]
    assert len(numbers) - len(set(numbers)) <= 1, "a killed worker costs a step at most"
    assert sorted(set(numbers)) == list(range(1, max(numbers) + 1)), "and none is left out"

    last = max(numbers)
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    job.until(lambda status: status["state"] == "Suspended" and not job.pods(), "the suspension")
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"suspend": false}}')
    job.until(
        lambda status: status.get("worldSize") == 3 and status["state"] == "Running",
        "the job again",
    )
    leader = job.members()[0]
    job.until_stepping(leader, 3)
    assert steps(job, leader)[0][0] > last, (
        "the last step was in the bucket before the pods were gone"
    )
