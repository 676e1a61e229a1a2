"""What a Trainer knows about its training besides model, optimizer and schedule: as a part of a State."""

import json
from typing import Any

# Fields of transformers.TrainerState that the training has changed. The others follow from the arguments, or differ between ranks.
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
    """Saves and loads the `state` of a Trainer, and the states of its callbacks.

    All of it is text in JSON, as in the checkpoints of the Trainer. The log is encoded line by line, once each: it grows with the training.
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
            "callbacks": json.dumps([[type(each).__name__, each.state()["attributes"]] for each in self._exportable()]),
            "stopped": bool(self._trainer.control.should_training_stop),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Loads a progress. A callback that was not there is left as it is."""
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
        return [each for each in callbacks if hasattr(each, "state") and hasattr(each, "from_state")]
