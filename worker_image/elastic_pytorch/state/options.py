"""The options of a State."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a State commits, and where its checkpoints go.

    Attributes:
        name: the name of the training, if it is not the only one in the folder: its checkpoints are
            in a sub-folder of that name.
        keep: how many checkpoints to keep there.
        keep_every_steps: the first checkpoint at or after each multiple of this number is never
            deleted. None: only the newest are kept.
        every: steps from one commit to the next. None: as often as possible within a hundredth of
            the steps' measured time. A stop at a boundary always commits, and so does the last
            step. Without `memory`, a commit is a checkpoint.
        flush_seconds: the least time between two checkpoints on disk, which take about a tenth of
            the time. None: 5, or 600 if sharded. Without `memory`, `every` goes before it.
        total_steps: the step at which training is done, for the progress reports of a loop of your
            own; `steps` has `max_steps`.
        overlap: copy what the registered optimizers own from a GPU during the next step's forward
            and backward. Only its optimizer may then write to a weight between a commit and the
            next step of the optimizer. Not for sharded models.
        memory: whether each rank commits its part of a sharded model to its pod's memory. It takes
            twice that part, and as much for another rank's copy. False: there are only checkpoints,
            and training waits for those of `every`.
        initial: loads the first weights into the registered objects. `restore` calls it, without
            arguments, on rank 0 alone, and only if it finds no state. All ranks get what is
            registered from there. Not for sharded models.

    Raises:
        ValueError: a number is too small.
    """

    name: str = ""
    keep: int = 2
    keep_every_steps: int | None = None
    every: int | None = None
    flush_seconds: float | None = None
    total_steps: int | None = None
    overlap: bool = False
    memory: bool = True
    initial: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if (
            self.keep < 1
            or (self.every is not None and self.every < 1)
            or (self.flush_seconds or 0) < 0
        ):
            raise ValueError("keep and every must be at least 1, and flush_seconds not negative")


def refuse_options(values: dict[str, Any]) -> None:
    if meant := [each.name for each in fields(Options) if each.name in values]:
        given = ", ".join(f"{name}=…" for name in meant)
        raise ValueError(
            f"{', '.join(meant)}: what is given by name is registered, and options are apart: "
            f"State(folder, State.Options({given}), model=model). A plain value needs another name"
        )
