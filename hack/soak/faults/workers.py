"""Faults of processes, containers and pods; and the size of a job."""

from measure.api import jobs_path, pods_path

from soak.plan import Fault
from soak.stage import Stage, Target, job_of, pick

KILL = "import os; os.kill({pid}, 9)"


async def kill_process(stage: Stage, fault: Fault) -> Target:
    """Kills one training process of a worker, by its process id in the pod."""
    pod = pick(fault.pick, stage.workers(), "worker")
    name, job = pod["metadata"]["name"], job_of(pod)
    pids = sorted({line["pid"] for line in stage.observer.lines[job][-200:] if line["worker"] == name})
    pid = pick(fault.pick, pids, f"process of {name} that has told of anything lately")
    command = ("-n", stage.namespace, "exec", name, "-c", "pytorch", "--", "python3", "-c", KILL.format(pid=pid))
    return Target(f"SIGKILL to process {pid} of {name}", lambda: stage.commands.kubectl(*command), jobs=frozenset({job}))


async def kill_container(stage: Stage, fault: Fault) -> Target:
    """Kills all processes of a worker, the agent too, as the kernel does when memory is short."""
    pod = pick(fault.pick, stage.workers(), "worker")
    name = pod["metadata"]["name"]
    what = f"SIGKILL to the container of {name}"
    return Target(what, lambda: stage.kill_pod_process(pod), jobs=frozenset({job_of(pod)}), pods=frozenset({name}))


async def delete_pod(stage: Stage, fault: Fault) -> Target:
    """Deletes a worker's pod as `kubectl delete pod` does; without grace, as with `--grace-period=0 --force`."""
    now = fault.kind == "delete-pod-now"
    pod = pick(fault.pick, stage.workers(), "worker")
    name = pod["metadata"]["name"]

    async def delete() -> None:
        await stage.api.ask("DELETE", pods_path(stage.namespace, name), {"gracePeriodSeconds": 0} if now else None)

    what = f"kubectl delete pod {name}{' --grace-period=0 --force' if now else ''}"
    return Target(what, delete, jobs=frozenset({job_of(pod)}), pods=frozenset({name}))


async def scale(stage: Stage, fault: Fault) -> Target:
    """Gives a job another size that its bounds allow."""
    jobs = stage.observer.jobs
    name = pick(fault.pick, [name for name in stage.running_jobs() if jobs[name].elastic], "elastic job")
    job = jobs[name]
    sizes = [size for size in range(job.minimum, job.maximum + 1) if size != job.wanted]
    size = pick(fault.pick // 7, sizes, f"other size for {name}")

    async def patch() -> None:
        await stage.api.ask("PATCH", f"{jobs_path(stage.namespace, name)}/scale", {"spec": {"replicas": size}})

    return Target(f"kubectl scale epj/{name} --replicas={size} (from {job.wanted})", patch, jobs=frozenset({name}))
