"""What a State keeps of a Trainer besides model, optimizer and schedule."""

import json
import time
from typing import Any

# The other fields of transformers.TrainerState follow from the arguments, or differ between ranks.
KEPT = (
    "epoch",
    "global_step",
    "num_input_tokens_seen",
    "total_flos",
    "best_metric",
    "best_global_step",
    "best_model_checkpoint",
)


class TrainerProgress:
    """The `state` of a Trainer, and the states of its callbacks, in JSON as in its own checkpoints.

    The log grows with the training, so each line of it is encoded only once.
    """

    rank_0_counts = True

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._log: list[str] = []
        self.stopped = False  # a callback has ended the training before its last step

    def state_dict(self) -> dict[str, Any]:
        state = self._trainer.state
        self._log += [json.dumps(line) for line in state.log_history[len(self._log) :]]
        return {
            "state": json.dumps({name: getattr(state, name) for name in KEPT}),
            "log": "\n".join(self._log),
            "callbacks": json.dumps(
                [[type(each).__name__, each.state()["attributes"]] for each in self._exportable()]
            ),
            "stopped": bool(self._trainer.control.should_training_stop),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        state = self._trainer.state
        for name, value in json.loads(saved["state"]).items():
            setattr(state, name, value)
        self._log = saved["log"].split("\n") if saved["log"] else []
        state.log_history = [json.loads(line) for line in self._log]
        self.stopped = saved["stopped"]
        left = self._exportable()
        for kind, attributes in json.loads(saved["callbacks"]):
            found = next((each for each in left if type(each).__name__ == kind), None)
            if found is not None:
                left.remove(found)
                for name, value in attributes.items():
                    setattr(found, name, value)

    def _exportable(self) -> list[Any]:
        callbacks = self._trainer.callback_handler.callbacks
        return [
            each for each in callbacks if hasattr(each, "state") and hasattr(each, "from_state")
        ]


class LossWindow:
    """The losses that a Trainer has added up, and the times: it begins at zero in each process.

    Each rank has its own sum since the last log.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._loaded = {"sum": 0.0, "total": 0.0, "logged": 0, "seconds": 0.0}
        self._begun_at: float | None = None

    @property
    def seconds_before(self) -> float:
        """The training time of the groups before."""
        return self._loaded["seconds"]

    def begin(self) -> None:
        """Runs after the Trainer has set its own values."""
        trainer, loaded = self._trainer, self._loaded
        trainer._tr_loss += loaded["sum"]
        trainer._total_loss_scalar = loaded["total"]
        trainer._globalstep_last_logged = loaded["logged"]
        trainer._initial_global_step = 0  # what the totals are divided by
        self._begun_at = time.time()

    def state_dict(self) -> dict[str, Any]:
        if self._begun_at is None:
            return self._loaded
        trainer, seconds = self._trainer, self.seconds_before + time.time() - self._begun_at
        return {
            "sum": float(trainer._tr_loss),
            "total": trainer._total_loss_scalar,
            "logged": trainer._globalstep_last_logged,
            "seconds": seconds,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._loaded = saved


def mean_window(windows: list[dict[str, Any]], *_: int) -> dict[str, Any]:
    """Returns each rank's LossWindow for a group of another size: the Trainer logs the mean sum."""
    return windows[0] | {"sum": sum(each["sum"] for each in windows) / len(windows)}
