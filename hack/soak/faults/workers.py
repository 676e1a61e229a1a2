"""Faults of processes, containers and pods; and the size of a job."""

from measure import engine
from measure.engine import Target

from soak.perform import pick
from soak.plan import Fault
from soak.stage import Stage, job_of


async def kill_process(stage: Stage, fault: Fault) -> Target:
    pod = pick(fault.pick, stage.workers(), "worker")
    name, job = pod["metadata"]["name"], job_of(pod)
    lines = stage.observer.lines[job][-200:]
    pids = sorted({line["pid"] for line in lines if line["worker"] == name})
    pid = pick(fault.pick, pids, f"process of {name} that has told of anything lately")
    return engine.kill_process(stage.driver, pod, pid, job)


async def kill_container(stage: Stage, fault: Fault) -> Target:
    pod = pick(fault.pick, stage.workers(), "worker")
    return engine.kill_pods(stage.driver, [pod], frozenset({job_of(pod)}))


async def delete_pod(stage: Stage, fault: Fault) -> Target:
    pod = pick(fault.pick, stage.workers(), "worker")
    force = fault.kind == "delete-pod-now"
    return engine.delete_pod(stage.driver, pod["metadata"]["name"], job_of(pod), force=force)


async def scale(stage: Stage, fault: Fault) -> Target:
    jobs = stage.observer.jobs
    elastic = [name for name in stage.running_jobs() if jobs[name].elastic]
    name = pick(fault.pick, elastic, "elastic job")
    job = jobs[name]
    sizes = [size for size in range(job.minimum, job.maximum + 1) if size != job.wanted]
    return engine.scale(stage.driver, name, pick(fault.pick // 7, sizes, f"other size for {name}"))
