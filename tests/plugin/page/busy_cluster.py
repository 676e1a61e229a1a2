"""A cluster of jobs of all sorts, as a team has them: for pictures and for measurements."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.plugin.page.watched_cluster import WatchedCluster
from tests.plugin.recorded_cluster import Object, recorded

NAMES = (
    "llama-sft",
    "vit-large",
    "whisper-ft",
    "rm-pairs",
    "char-lm",
    "moe-8x",
    "clip-b32",
    "t5-xl",
    "dlrm",
    "unet-sd",
)
PHASES = ("detection", "stop", "wait", "start", "init", "firstStep")
TRACE = """Traceback (most recent call last):
  File "/app/train.py", line 67, in <module>
    main()
    ~~~~^^
  File "/app/train.py", line 55, in main
    raise ValueError(f"loss is not finite at step {step}: {loss}")
ValueError: loss is not finite at step 41200: nan
"""


def rfc(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    type_: str, reason: str, message: str, since: datetime, status: str = "True"
) -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc(since),
    }


def a_job(number: int, now: datetime, *, seed: int = 7) -> Object:
    """A job of a sort that its number chooses."""
    chance = random.Random(seed * 100_003 + number)
    job = recorded("whole")["job"]
    wanted = chance.choice([2, 4, 4, 8, 8, 16, 64])
    sort = chance.choices(
        ["runs", "degraded", "resizing", "pending", "suspended", "complete", "failed"],
        [60, 6, 5, 7, 5, 12, 5],
    )[0]
    name = f"{NAMES[number % len(NAMES)]}-{number:04d}"
    total = chance.choice([20_000, 100_000, 250_000])
    step = total if sort == "complete" else chance.randrange(1, total)
    began = now - timedelta(seconds=chance.randrange(900, 200_000))
    job["metadata"] |= {
        "name": name,
        "uid": f"uid-{number}",
        "creationTimestamp": rfc(began),
        "generation": 1,
    }
    job["spec"] |= {
        "replicas": wanted,
        "minReplicas": max(1, wanted // 2),
        "maxReplicas": wanted * 2,
        "suspend": sort == "suspended",
    }
    ready = {"degraded": wanted - 1, "resizing": wanted - 1, "runs": wanted}.get(sort, 0)
    states = ["Running"] * ready + ["Starting"] * (
        wanted - ready if sort in ("degraded", "resizing", "pending") else 0
    )
    status = job["status"] = {
        "observedGeneration": 1,
        "state": {"runs": "Running", "degraded": "Running"}.get(sort, sort.capitalize()),
        "startTime": rfc(began),
        "readyReplicas": ready,
        "worldSize": ready * 8,
        "round": chance.randrange(1, 12) if ready else 0,
        "failures": 0,
        "totalFailures": 0,
        "conditions": [
            condition(
                "Running",
                "RoundRunning",
                f"{ready} of {wanted} workers train",
                began,
                "True" if ready else "False",
            )
        ],
        "workers": [
            {
                "index": i,
                "name": f"{name}-worker-{i}-x{chance.randrange(999):03d}",
                "node": f"gpu-{chance.randrange(40):02d}",
                "state": state,
            }
            | ({"rank": i} if state == "Running" else {})
            for i, state in enumerate(states)
        ],
        "progress": {
            "step": step,
            "total": total,
            "loss": f"{chance.uniform(0.4, 3):.4f}",
            "stepsPerSecond": f"{chance.uniform(0.5, 9):.2f}",
        },
        "goodput": {
            "seconds": {
                "Training": 9600,
                "Recovering": chance.randrange(20, 500),
                "Starting": chance.randrange(20, 300),
            }
        },
    }
    status["history"] = [
        {"time": rfc(began), "round": 1, "replicas": wanted, "cause": "FirstRound"}
    ]
    if chance.random() < 0.5 and ready:
        status["history"] += [
            an_interruption(chance, now - timedelta(minutes=9 * back + 4), 9 - back)
            for back in range(chance.randrange(1, 6), 0, -1)
        ]
    status["interruptions"] = len(status["history"]) - 1
    status["history"] += samples(
        chance, began if ready else now, now, float(status["progress"]["loss"]) - 0.1
    )
    status["history"].sort(key=lambda entry: entry["time"])
    _add_conditions(status, sort, wanted, ready, now - timedelta(minutes=3))
    return job


def an_interruption(
    chance: random.Random, ended: datetime, round_: int, replicas: int = 8
) -> dict[str, Any]:
    seconds = {phase: round(chance.uniform(0.05, 4.0), 2) for phase in PHASES}
    return {
        "cause": chance.choice(["WorkerLost", "WorkerJoined", "WorkerLeaving", "WorkerFailed"]),
        "seconds": f"{sum(seconds.values()):.2f}",
        "stepsLost": chance.choice([0, 3, 12]),
        "phaseSeconds": {phase: f"{value:.2f}" for phase, value in seconds.items()},
        "round": round_,
        "replicas": replicas,
        "time": rfc(ended),
    }


def a_cause(worker: str, rank: int, node: str, at: datetime) -> Object:
    where = {"worker": worker, "rank": rank, "node": node, "pid": 71}
    return {**where, "exitCode": 1, "time": rfc(at), "message": TRACE}


def samples(
    chance: random.Random, began: datetime, now: datetime, limit: float = 1.8
) -> list[dict[str, Any]]:
    """A loss that falls towards a limit, and a speed."""
    step = (now - began) / 24
    return [
        {
            "time": rfc(began + step * number),
            "loss": f"{limit + 1.6 / number + chance.uniform(0, 0.08):.3f}",
            "stepsPerSecond": f"{5.6 + chance.uniform(-0.3, 0.3):.2g}",
        }
        for number in range(1, 24 if now > began else 1)
    ]


def _add_conditions(
    status: dict[str, Any], sort: str, wanted: int, ready: int, since: datetime
) -> None:
    def add(type_: str, reason: str, message: str) -> None:
        status["conditions"].append(condition(type_, reason, message, since))

    no_node = "0/40 nodes are available: 40 Insufficient nvidia.com/gpu"
    if sort in ("degraded", "resizing"):
        add(
            "Degraded",
            "WorkersMissing",
            f"trains with {ready} of {wanted} workers; 1 pod: {no_node}",
        )
    if sort == "resizing":
        add("Resizing", "SizeChanging", f"growing from {ready} to {wanted} workers")
    if sort == "pending":
        message = f"0 of {wanted} workers are ready; {wanted} pods: {no_node}"
        status["conditions"][0] |= {"reason": "WaitingForWorkers", "message": message}
        del status["progress"]
        del status["goodput"]
    if sort == "suspended":
        add("Suspended", "JobSuspended", "no pod is left")
    if sort == "complete":
        add("Complete", "AllSucceeded", "all workers have succeeded")
        status["completionTime"] = rfc(since)
    if sort == "failed":
        add("Failed", "TooManyFailures", f"w-3 has failed: exit code 1: {TRACE}")
        status |= {"completionTime": rfc(since), "rootCause": a_cause("w-3", 3, "gpu-07", since)}


def cluster_of(count: int, now: datetime) -> WatchedCluster:
    """A cluster with a number of jobs."""
    cluster = WatchedCluster()
    for number in range(count):
        cluster.put(a_job(number, now))
    return cluster


def a_story(cluster: WatchedCluster, now: datetime) -> Object:
    """Adds a job with an hour behind it: rounds, losses, a slow rank, a failure, logs."""
    chance = random.Random(3)
    job = a_job(0, now, seed=1)
    name = "llama-sft"
    sizes = [
        *(
            (58, 8, "FirstRound"),
            (41, 7, "WorkerLost"),
            (39, 8, "WorkerJoined"),
            (22, 6, "WorkerFailed"),
        ),
        *((20.5, 8, "WorkerJoined"), (9, 7, "Evicted"), (7.6, 8, "WorkerJoined")),
    ]
    job["metadata"] |= {
        "name": name,
        "uid": "uid-story",
        "creationTimestamp": rfc(now - timedelta(minutes=60)),
    }
    job["spec"] |= {"replicas": 8, "minReplicas": 4, "maxReplicas": 16, "suspend": False}
    status = job["status"]
    status |= {
        "state": "Running",
        "readyReplicas": 8,
        "worldSize": 64,
        "round": 7,
        "interruptions": 6,
        "startTime": rfc(now - timedelta(minutes=59)),
    }
    status["conditions"] = [
        condition(
            type_,
            reason,
            message,
            now - timedelta(minutes=back),
            "True" if type_ == "Running" else "False",
        )
        for type_, reason, message, back in (
            ("Running", "RoundRunning", "8 of 8 workers train", 58),
            ("Resizing", "SizeReached", "8 workers train", 7),
            ("Degraded", "AllWorkersTrain", "all wanted workers train", 7),
            ("Suspended", "NotSuspended", "the job is not suspended", 58),
            ("Complete", "NotEnded", "the job has not ended", 58),
            ("Failed", "NotEnded", "the job has not ended", 58),
        )
    ]
    status["workers"] = [
        {
            "index": i,
            "rank": i,
            "name": f"{name}-worker-{i}-{chance.randrange(16**5):05x}",
            "node": f"gpu-{10 + i:02d}",
            "state": "Running",
        }
        for i in range(8)
    ]
    status["stragglers"] = [
        {
            "rank": 40,
            "worker": status["workers"][5]["name"],
            "node": "gpu-15",
            "slowdown": "1.42",
            "medianSeconds": "0.43",
        }
    ]
    status["progress"] = {
        "step": 41_250,
        "total": 60_000,
        "loss": "1.8123",
        "stepsPerSecond": "5.60",
        "checkpointStep": 41_200,
        "metrics": {"accuracy": "0.641", "lr": "0.0002"},
    }
    status["goodput"] = {"seconds": {"Training": 3430, "Recovering": 58, "Starting": 45}}
    began = now - timedelta(minutes=sizes[0][0])
    status["history"] = [
        {"time": rfc(began), "round": 1, "replicas": 8, "cause": "FirstRound"},
        *samples(chance, began, now),
    ]
    status["history"] += [
        an_interruption(chance, now - timedelta(minutes=back) + timedelta(seconds=12), i + 2, size)
        | {"cause": cause}
        for i, (back, size, cause) in enumerate(sizes[1:])
    ]
    status["history"].sort(key=lambda entry: entry["time"])
    status["rootCause"] = a_cause(
        f"{name}-worker-3-0c1d2", 26, "gpu-13", now - timedelta(minutes=22)
    )
    cluster.put(job)
    for number, (back, size, cause) in enumerate(sizes, start=1):
        note = f"Round {number}: {size} workers train"
        lost = cause in ("WorkerLost", "WorkerFailed")
        cluster.tell(
            [
                event(
                    job,
                    now - timedelta(minutes=back),
                    cause,
                    note,
                    lost,
                    round=number,
                    workers=size,
                )
            ]
        )
    slow = "Rank 40 on gpu-15 works 1.42 times as long in a step as the median"
    cluster.tell([event(job, now - timedelta(minutes=4), "Straggler", slow, True)])
    for worker in status["workers"]:
        cluster.logs[worker["name"]] = [
            _log_line(chance, 41_050 + step, now - timedelta(seconds=240 - step))
            for step in range(0, 240, 2)
        ]
    return cluster.get_job("team", name)


def troubled_nodes(cluster: WatchedCluster) -> None:
    """Gives a cluster 40 nodes, of which some end or fail."""
    marks: dict[int, Object] = {
        4: {
            "spec": {
                "taints": [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]
            }
        },
        9: {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        17: {
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "GpuNvlinkWatch", "status": "True"},
                ]
            }
        },
        31: {"spec": {"unschedulable": True}},
    }
    ready = {"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.put_nodes(
        [{"metadata": {"name": f"gpu-{i:02d}"}, **ready, **marks.get(i, {})} for i in range(40)]
    )


def event(
    job: Object, at: datetime, reason: str, note: str, warning: bool = False, **facts: object
) -> Object:
    """An event about a job."""
    about = {
        "kind": "ElasticPyTorchJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    annotations = {f"elasticpytorch.dev/{name}": str(value) for name, value in facts.items()}
    return {
        "metadata": {"annotations": annotations},
        "involvedObject": about,
        "eventTime": rfc(at),
        "reason": reason,
        "message": note,
        "type": "Warning" if warning else "Normal",
    }


def _log_line(chance: random.Random, step: int, at: datetime) -> str:
    loss, speed = 1.83 + chance.uniform(-0.05, 0.05), chance.randrange(90_000, 99_000)
    return f"{rfc(at)} step {step} loss {loss:.4f} lr 2.0e-04 tokens/s {speed}"
