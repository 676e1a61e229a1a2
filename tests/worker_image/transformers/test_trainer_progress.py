from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch.transformers.trainer_progress import TrainerProgress


@dataclass
class State:
    epoch: float = 0.0
    global_step: int = 0
    max_steps: int = 100
    num_input_tokens_seen: int = 0
    total_flos: float = 0.0
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_world_process_zero: bool = True
    log_history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Patience:
    """A callback with a state, as EarlyStoppingCallback is one."""

    counter: int = 0

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"counter": self.counter}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Patience":
        return cls(**state["attributes"])


class Printer: ...


@dataclass
class Control:
    should_training_stop: bool = False


@dataclass
class Handler:
    callbacks: list[Any] = field(default_factory=list)


@dataclass
class Trainer:
    state: State = field(default_factory=State)
    control: Control = field(default_factory=Control)
    callback_handler: Handler = field(default_factory=Handler)


def test_what_the_training_has_changed_is_kept_and_the_rest_is_not() -> None:
    old = Trainer(
        State(
            epoch=1.5, global_step=30, best_metric=0.25, max_steps=100, is_world_process_zero=True
        )
    )
    new = Trainer(State(max_steps=200, is_world_process_zero=False))
    TrainerProgress(new).load_state_dict(TrainerProgress(old).state_dict())
    assert new.state == State(
        epoch=1.5, global_step=30, best_metric=0.25, max_steps=200, is_world_process_zero=False
    )


def test_the_log_goes_on() -> None:
    trainer = Trainer()
    progress = TrainerProgress(trainer)
    assert progress.state_dict()["log"] == ""
    trainer.state.log_history += [{"loss": 2.5, "step": 1}]
    progress.state_dict()
    trainer.state.log_history += [{"eval_loss": 2.0, "step": 1}]
    new = Trainer()
    following = TrainerProgress(new)
    following.load_state_dict(progress.state_dict())
    assert new.state.log_history == trainer.state.log_history
    new.state.log_history += [{"loss": 1.5, "step": 2}]
    assert following.state_dict()["log"].count("\n") == 2


def test_callbacks_go_on_each_by_itself() -> None:
    old = Trainer(callback_handler=Handler([Patience(3), Printer(), Patience(5)]))
    new = Trainer(callback_handler=Handler([Printer(), Patience(), Patience(), Patience(9)]))
    TrainerProgress(new).load_state_dict(TrainerProgress(old).state_dict())
    assert [each.counter for each in new.callback_handler.callbacks[1:]] == [3, 5, 9]


def test_a_training_that_a_callback_has_ended_stays_ended() -> None:
    old, new = Trainer(), TrainerProgress(Trainer())
    new.load_state_dict(TrainerProgress(old).state_dict())
    assert not new.stopped
    old.control.should_training_stop = True
    new.load_state_dict(TrainerProgress(old).state_dict())
    assert new.stopped
