"""What the demo reads of an ElasticPyTorchJob's status."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Worker:
    """A worker pod, as the operator sees it."""

    name: str
    rank: int | None
    node: str
    state: str

    @property
    def member(self) -> bool:
        """Whether it trains."""
        return self.rank is not None and self.state == "Running"


@dataclass(frozen=True)
class JobStatus:
    """The job's status; every field has a value, whether the operator has written one yet or not."""

    state: str = "Pending"
    round: int = 0
    world_size: int = 0
    step: int = 0
    total: int = 0
    loss: str = ""
    workers: tuple[Worker, ...] = ()
    conditions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, job: dict[str, Any]) -> "JobStatus":
        """Read the status of a job as the API server gives it."""
        status = job.get("status") or {}
        progress = status.get("progress") or {}
        return cls(
            state=status.get("state", "Pending"),
            round=status.get("round", 0),
            world_size=status.get("worldSize", 0),
            step=progress.get("step", 0),
            total=progress.get("total", 0),
            loss=progress.get("loss", ""),
            workers=tuple(
                Worker(
                    name=worker["name"],
                    rank=worker.get("rank"),
                    node=worker.get("node", ""),
                    state=worker.get("state", ""),
                )
                for worker in status.get("workers") or ()
            ),
            conditions={
                condition["type"]: condition.get("message", "")
                for condition in status.get("conditions") or ()
                if condition.get("status") == "True"
            },
        )

    @property
    def members(self) -> list[Worker]:
        """The workers that train, in rank order."""
        return sorted((w for w in self.workers if w.member), key=lambda worker: worker.rank or 0)
