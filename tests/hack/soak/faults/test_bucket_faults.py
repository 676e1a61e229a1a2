"""What is done to the job with a bucket, and to its server."""

from elastic_pytorch_client.reading.job_view import view_job
from soak.inject import how
from soak.plan import Fault
from soak.stage import Stage

from tests.hack.soak.faults.test_targets import CTR, Cluster, a_pod, cluster, stage  # noqa: F401


def told(stage: Stage) -> str:  # noqa: F811
    file = stage.folder / "bucket.fault"
    return file.read_text() if file.exists() else ""


async def test_the_bucket_and_its_job(stage: Stage, cluster: Cluster) -> None:  # noqa: F811
    stage.observer.pods |= {f"bucket-{i}": a_pod(f"bucket-{i}", "bucket", f"n{i}", index=i) for i in range(2)}
    stage.observer.jobs["bucket"] = view_job({"metadata": {"name": "bucket"}, "spec": {"replicas": 2}})
    killed = await how("kill-job")(stage, Fault("kill-job", 0, 0.0))
    await killed.do()
    assert sorted(cluster.done) == [f"docker exec n{i} {CTR} c-bucket-{i}" for i in range(2)]
    assert (killed.jobs, killed.pods) == ({"bucket"}, {"bucket-0", "bucket-1"})
    for kind in ("refuse-requests", "cut-connections"):
        target = await how(kind)(stage, Fault(kind, 0, 1.0))
        await target.do()
        assert told(stage) == kind
        assert target.undo
        await target.undo()
        assert told(stage) == ""
    cluster.done.clear()
    paused = await how("pause-server")(stage, Fault("pause-server", 0, 1.0))
    await paused.do()
    assert paused.undo
    await paused.undo()
    command = "docker exec control-plane sh -c pkill -{} -f '[o]bject_server.py'"
    assert cluster.done == [command.format("STOP"), command.format("CONT")]
