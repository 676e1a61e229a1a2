"""State that hooks named `on_save_checkpoint` keep, such as averaged weights."""

from collections.abc import Iterator
from typing import Any

SAVE, LOAD = "on_save_checkpoint", "on_load_checkpoint"


class CheckpointHooks:
    """What those hooks of callbacks, the module and its data module add to a checkpoint.

    The State has the module's own state already, so of entries that repeat it, only the names are
    kept.
    """

    rank_0_counts = True

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    @property
    def any(self) -> bool:
        return any(True for _ in self._owners())

    def state_dict(self) -> dict[str, Any]:
        """Raises a RuntimeError if a hook needs an entry that the dict does not have."""
        given = self._given()
        checkpoint = dict(given)
        for owner, arguments in self._owners():
            try:
                getattr(owner, SAVE)(*arguments, checkpoint)
            except KeyError as error:
                raise RuntimeError(
                    f"{type(owner).__name__}.{SAVE} needs {error} of the checkpoint, "
                    f"and in an elastic training it gets {', '.join(given)} only: "
                    "keep what it adds in a buffer of the module, or in a state_dict"
                ) from error
        model = given["state_dict"]
        same = [
            name for name, value in checkpoint.items() if value is model and name != "state_dict"
        ]
        added = {
            name: value
            for name, value in checkpoint.items()
            if value is not model and value is not given.get(name)
        }
        return {"same": same, "added": added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        given = self._given()
        model = given["state_dict"]
        checkpoint = {**given, **dict.fromkeys(state["same"], model), **state["added"]}
        for owner, arguments in self._owners():
            getattr(owner, LOAD)(*arguments, checkpoint)

    def _given(self) -> dict[str, Any]:
        trainer = self._trainer
        model = trainer.lightning_module.state_dict()
        return {
            "state_dict": model,
            "epoch": trainer.current_epoch,
            "global_step": trainer.global_step,
        }

    def _owners(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        trainer, module = self._trainer, self._trainer.lightning_module
        data = getattr(trainer, "datamodule", None)
        for owner, arguments in (
            *((each, (trainer, module)) for each in trainer.callbacks),
            (data, ()),
            (module, ()),
        ):
            if owner is not None and _has_hook(owner):
                yield owner, arguments


def _has_hook(owner: Any) -> bool:
    """Whether a class has a hook, apart from the empty ones of Lightning's base classes."""
    return any(
        {SAVE, LOAD} & vars(kind).keys()
        for kind in type(owner).__mro__
        if kind.__name__ not in ("Callback", "CheckpointHooks")
        or kind.__module__.partition(".")[0] not in ("lightning", "pytorch_lightning")
    )
