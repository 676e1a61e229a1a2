from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.manifests.agent_injection import AgentImage
from elastic_pytorch_operator.manifests.stock_pods import stock_worker_pod
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings, worker_pod
from elastic_pytorch_operator.model.actions import CreatePod
from elastic_pytorch_operator.model.observed import (
    AgentState,
    AgentView,
    Failure,
    Nodes,
    NodeView,
    Observed,
    PodView,
    Progress,
)
from elastic_pytorch_operator.model.peer_errors import is_echo
from elastic_pytorch_operator.model.round import Member, Round
from elastic_pytorch_operator.model.workload import Admission, WorkloadView
from elastic_pytorch_operator.planning.memory import Plan
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.rounds.next_round import Decision, next_round
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.spec.job import Job, JobKey, parse_job
from elastic_pytorch_operator.spec.queue import Queue

NOW = 1000.0
TIME = "2026-01-01T00:00:00Z"
Kind = TypeVar("Kind")


def a_manifest(
    name: str = "lm",
    *,
    namespace: str = "default",
    replicas: int | None = 3,
    minimum: int | None = 1,
    maximum: int | None = 4,
    **spec: Any,
) -> dict[str, Any]:
    sizes = {"replicas": replicas, "minReplicas": minimum, "maxReplicas": maximum}
    return {
        "apiVersion": "elasticpytorch.dev/v1alpha1",
        "kind": "ElasticPyTorchJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": "1",
        },
        "spec": {
            **{field: size for field, size in sizes.items() if size is not None},
            "template": {
                "spec": {
                    "containers": [{"name": "pytorch", "image": "torch", "args": ["train.py"]}]
                }
            },
            **spec,
        },
    }


def a_job(**fields: Any) -> Job:
    status = fields.pop("status", {})
    return parse_job({**a_manifest(**fields), "status": status})


def a_pod(index: int, *, name: str = "", **fields: Any) -> PodView:
    defaults: dict[str, Any] = {
        "phase": "Running",
        "node": "node-0",
        "address": f"10.0.0.{index}",
        "started": True,
        "created_at": 1.0,
    }
    name = name or f"w{index}"
    return PodView(name=name, uid=f"uid-{name}", index=index, **{**defaults, **fields})


def a_pending_pod(index: int, **fields: Any) -> PodView:
    reason = fields.get("waiting", "").split(" ")[0].rstrip(":")
    waiting = {
        "phase": "Pending",
        "node": "",
        "address": "",
        "started": False,
        "waiting_reason": reason,
    }
    return a_pod(index, **{**waiting, **fields})


def a_dead_pod(
    index: int, *, exit_code: int = 1, exit_reason: str = "Error", **fields: Any
) -> PodView:
    return a_pod(
        index, phase="Failed", started=False, exit_code=exit_code, exit_reason=exit_reason, **fields
    )


def a_worker_pod(
    job: Job | None = None,
    index: int = 0,
    avoid: Sequence[str] = (),
    agent_image: AgentImage | None = None,
    **action: Any,
) -> dict[str, Any]:
    """The manifest of a worker's pod."""
    agent = AgentSettings("http://operator:8443", agent_image)
    return worker_pod(job or a_job(), CreatePod(index, tuple(avoid), **action), "x7k2p", agent)


def a_stock_pod(job: Job, index: int = 0, rendezvous: int = 1, **action: Any) -> dict[str, Any]:
    """The manifest of a worker's pod in which stock torchrun runs."""
    return stock_worker_pod(job, CreatePod(index, rendezvous=rendezvous, **action), "x7k2p")


def an_agent(worker: str, state: str = "running", round_: int = 1, **fields: Any) -> AgentView:
    defaults: dict[str, Any] = {
        "incarnation": f"i-{worker}",
        "rank": 0,
        "world_size": 3,
        "local_world_size": 1,
        "port": 29501,
        "heard_at": NOW,
        "state_since": NOW - 100,
    }
    return AgentView(worker=worker, state=AgentState(state), round=round_, **{**defaults, **fields})


def a_failure(message: str = "ValueError: boom", **fields: Any) -> Failure:
    defaults: dict[str, Any] = {
        "rank": 0,
        "exit_code": 1,
        "signal": "",
        "exception": message.partition(":")[0],
        "traceback": "",
        "failed_at": NOW,
    }
    fields = {**defaults, "message": message, **fields}
    judged = ("exit_code", "signal", "exception", "message", "traceback")
    return Failure(**{"echo": is_echo(**{name: fields[name] for name in judged}), **fields})


def a_round(*indices: int, number: int = 1, **fields: Any) -> Round:
    members = tuple(Member(f"w{index}", f"10.0.0.{index}") for index in indices)
    return Round(number, members, 29500, "FirstRound", "", NOW - 100, **fields)


def observed(
    pods: Sequence[PodView] = (), agents: Sequence[AgentView] = (), **fields: Any
) -> Observed:
    defaults: dict[str, Any] = {
        "nodes": {f"node-{n}": NodeView(f"node-{n}") for n in range(3)},
        "service_exists": True,
    }
    facts = {**defaults, **fields}
    facts["nodes"] = Nodes(facts["nodes"])
    return Observed(
        now=NOW, time=TIME, pods=tuple(pods), agents={a.worker: a for a in agents}, **facts
    )


def actions_of(todo: Plan, kind: type[Kind]) -> list[Kind]:
    return [action for action in todo.actions if isinstance(action, kind)]


def fields_of(status: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(status[name] for name in names)


def condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """The condition of a status, which must have it."""
    found = find_condition(status, type_)
    assert found, f"no condition {type_} in {status}"
    return found


KEY = JobKey("default", "lm")
OWNER = KEY, "uid-lm"

__all__ = [
    "KEY",
    "NOW",
    "TIME",
    "Progress",
    "a_dead_pod",
    "a_failure",
    "a_job",
    "a_manifest",
    "a_pending_pod",
    "a_pod",
    "a_round",
    "a_worker_pod",
    "actions_of",
    "an_agent",
    "condition",
    "fields_of",
    "observed",
]


def a_workload(
    number: int = 0, state: str = "admitted", *, count: int = 0, **fields: Any
) -> WorkloadView:
    """A Workload of the job `lm`: `pending`, `admitted`, `evicted`, or `released` after that.

    The base is for two workers.
    """
    name = f"lm-extra-{number}" if number else "lm-base"
    holds = state in ("admitted", "evicted")
    said = {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": ("True", "Admitted")}
    if not holds:
        said = {"QuotaReserved": ("False", "Pending")} if state != "unseen" else {}
    if state == "evicted":
        said["Evicted"] = ("True", "Preempted")
    conditions = fields.pop("conditions", {})
    said |= {type_: (status, reason) for type_, (status, reason) in conditions.items()}
    count = count or (1 if number else 2)
    defaults: dict[str, Any] = {
        "queue": "team",
        "admission": Admission("shared", count, ("flavor",)) if holds else None,
        "evicted_since": 1.0 if state == "evicted" else None,
    }
    told = {
        type_: {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": f"{type_} said",
            "lastTransitionTime": TIME,
        }
        for type_, (status, reason) in said.items()
    }
    return WorkloadView(
        name, f"uid-{name}", "7", number, count, **{**defaults, "conditions": told, **fields}
    )


def an_extra(job: Job, number: int, state: str = "admitted", **fields: Any) -> WorkloadView:
    """A Workload of the job `lm` for its `extraWorkers`, of a flavor of its own."""
    workers = job.scheduling.extra_workers
    made = a_workload(number, state, quota_for="" if workers is None else workers.text, **fields)
    if made.admission is None:
        return made
    return replace(made, admission=replace(made.admission, flavors=("spot",)))


def a_target(job: Job) -> Target:
    return Target(job.wanted, spares=job.spares)


def a_queued_job(minimum: int | None = 2, replicas: int = 4, **fields: Any) -> Job:
    maximum = replicas if minimum else None
    return replace(
        a_job(replicas=replicas, minimum=minimum, maximum=maximum, **fields), queue=Queue("team")
    )


AGENT_FIELDS = {
    *("port", "heard_at", "state_since", "disconnected_since", "local_world_size"),
    *("restarts", "keeps_processes"),
}


def a_candidate(index: int, liveness: str = "ready", **fields: Any) -> Candidate:
    """The fields are its own, or those of its agent."""
    said = {
        "round_": fields.pop("round", 0),
        "port": 29510 + index,
        "local_world_size": 0,
        **{name: fields.pop(name) for name in AGENT_FIELDS & fields.keys()},
    }
    defaults: dict[str, Any] = {"worker": f"w{index}", "address": f"10.0.0.{index}"}
    facts = {**defaults, **fields}
    agent = an_agent(facts["worker"], **said)
    return Candidate(index=index, liveness=Liveness(liveness), agent=agent, **facts)


def decide_next(
    current: Round | None,
    candidates: Sequence[Candidate],
    wanted: int = 3,
    *,
    last_number: int = 0,
    agents: Sequence[AgentView] = (),
    job: Mapping[str, Any] = MappingProxyType({}),
    **state: Any,
) -> Decision:
    """What comes after a round of which an earlier status tells, for a job with these fields."""
    told = a_job(**{"status": {"round": last_number}, **job})
    return next_round(
        told, Target(wanted), observed(agents=agents, round=current), candidates, **state
    )


def declare_next(
    current: Round | None, candidates: Sequence[Candidate], wanted: int = 3, **known: Any
) -> Round:
    """The round that is declared next, which must be one."""
    declared = decide_next(current, candidates, wanted, **known).round
    assert declared is not None
    return declared
