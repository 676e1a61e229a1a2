"""The elastic Trainer in one process: what it computes, does beside that, and refuses."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.process]


def test_the_library_imports_transformers_only_when_asked_to() -> None:
    code = (
        "import sys, elastic_pytorch, elastic_pytorch.transformers; "
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_steps_are_those_of_the_stock_trainer_with_the_same_batches(
    small: ModuleType, tmp_path: Path
) -> None:
    """Without dropout, and in the dataset's order: then batches and losses are comparable."""
    order = {"dropout": 0.0, "train_sampling_strategy": "sequential"}
    elastic = small.a_trainer(tmp_path / "elastic", **order)
    elastic.train()
    stock = small.transformers.Trainer(
        model=small.small_model(0.0),
        args=small.arguments(
            tmp_path / "stock", gradient_accumulation_steps=2, train_sampling_strategy="sequential"
        ),
        train_dataset=small.Rows(),
    )
    stock.train()
    assert small.losses(elastic) == pytest.approx(small.losses(stock), abs=1e-5)
    assert elastic.state.max_steps == stock.state.max_steps == 8
    rates = [
        [line["learning_rate"] for line in each.state.log_history if "loss" in line]
        for each in (elastic, stock)
    ]
    assert rates[0] == pytest.approx(rates[1])


def test_the_size_of_a_micro_batch_changes_nothing(small: ModuleType, tmp_path: Path) -> None:
    trainers = [
        small.a_trainer(tmp_path / str(size), dropout=0.0, per_device_train_batch_size=size)
        for size in (1, 4, 6)
    ]
    for trainer in trainers:
        trainer.train()
    assert small.losses(trainers[0]) == pytest.approx(small.losses(trainers[1]), abs=1e-5)
    assert small.losses(trainers[0]) == pytest.approx(small.losses(trainers[2]), abs=1e-5)


def test_a_loss_that_is_a_mean_over_samples_is_weighted_by_them(
    small: ModuleType, tmp_path: Path
) -> None:
    trainers = [
        small.a_trainer(
            tmp_path / str(size), small.MeanOfSamples, 0.0, per_device_train_batch_size=size
        )
        for size in (4, 6)
    ]
    for trainer in trainers:
        trainer.train()
    assert small.losses(trainers[0]) == pytest.approx(small.losses(trainers[1]), abs=1e-5)


def test_a_loss_of_which_it_is_not_known_what_it_is_is_refused(
    small: ModuleType, tmp_path: Path
) -> None:
    class Unknown(small.MeanOfSamples):
        loss_is_scaled_for_ga = None

    with pytest.raises(
        ValueError,
        match="Unknown has its own compute_loss: set loss_is_scaled_for_ga = False in the class",
    ):
        small.a_trainer(tmp_path, Unknown)


def test_a_training_that_a_callback_has_ended_is_not_taken_up_again(
    small: ModuleType, tmp_path: Path
) -> None:
    first = small.a_trainer(tmp_path, callbacks=[small.Stops(3)])
    first.train()
    small.close(first)
    second = small.a_trainer(tmp_path, callbacks=[small.Stops(3)])
    second.train()
    assert second.state.global_step == 3
    assert small.losses(second) == small.losses(first)


def test_logged_losses_are_means_of_the_same_steps_after_a_restart(
    small: ModuleType, tmp_path: Path
) -> None:
    """The process ends within a window of the log, and another one goes on."""
    trainers = []
    for name, crashes in (("undisturbed", False), ("restarted", True), ("restarted", False)):
        trainer = small.a_trainer(
            tmp_path / name, callbacks=[small.Crashes()] if crashes else [], logging_steps=4
        )
        with pytest.raises(OSError, match="samples") if crashes else nullcontext():
            trainer.train()
        small.close(trainer)
        trainers.append(trainer)
    undisturbed, _, restarted = trainers
    assert small.losses(restarted) == pytest.approx(small.losses(undisturbed), abs=1e-6)
    ends = [trainer.state.log_history[-1] for trainer in (restarted, undisturbed)]
    assert ends[0]["train_loss"] == pytest.approx(ends[1]["train_loss"], abs=1e-6)


def test_evaluations_and_checkpoints_come_where_they_come_without_it(
    small: ModuleType, tmp_path: Path
) -> None:
    sees = small.Sees()
    trainer = small.a_trainer(
        tmp_path,
        callbacks=[sees],
        eval_dataset=small.Rows(),
        eval_strategy="epoch",
        save_strategy="steps",
        save_steps=3,
    )
    trainer.train()
    assert sees.steps == [(step, step / 4) for step in range(1, 9)]
    assert sees.evaluated == [4, 8]
    assert sees.saved == [3, 6, 8]
    assert (tmp_path / "checkpoint-6" / "trainer_state.json").exists()


def test_max_steps_end_the_training_within_an_epoch(small: ModuleType, tmp_path: Path) -> None:
    trainer = small.a_trainer(tmp_path, max_steps=6, bf16=True)
    trainer.train()
    assert trainer.state.global_step == 6
    assert trainer.state.epoch == 1.5


def test_a_second_training_begins_anew(small: ModuleType, tmp_path: Path) -> None:
    trainer = small.a_trainer(tmp_path)
    trainer.train()
    trainer.train()
    assert trainer.state.global_step == 8
    assert len(small.losses(trainer)) == 8
    assert trainer.lr_scheduler.last_epoch == 8


def test_the_mixin_makes_other_trainers_elastic(small: ModuleType, tmp_path: Path) -> None:
    from elastic_pytorch.transformers import ElasticTrainerMixin

    class MyTrainer(ElasticTrainerMixin, small.transformers.Seq2SeqTrainer):
        pass

    settings = small.transformers.Seq2SeqTrainingArguments(
        **small.arguments(tmp_path, max_steps=2).to_dict() | {"use_cpu": True}
    )
    trainer = MyTrainer(
        model=small.small_model(), args=settings, train_dataset=small.Rows(), batch_size=6
    )
    trainer.train()
    assert trainer.state.global_step == 2


def test_names_of_its_own_are_prefixed(small: ModuleType, tmp_path: Path) -> None:
    """A plain name may be a subclass's, or that of a later release of transformers."""
    from elastic_pytorch.transformers import ElasticTrainerMixin

    elastic = small.a_trainer(tmp_path / "elastic", max_steps=1)
    stock = small.transformers.Trainer(
        model=small.small_model(),
        args=small.arguments(tmp_path / "stock", max_steps=1),
        train_dataset=small.Rows(),
    )
    for trainer in (elastic, stock):
        trainer.train()
    own = (set(dir(ElasticTrainerMixin)) | set(vars(elastic))) - set(dir(stock))
    assert {name for name in own if not name.startswith(("_elastic_", "__"))} == set()


def test_a_checkpoint_to_resume_from_is_refused(small: ModuleType, tmp_path: Path) -> None:
    trainer = small.a_trainer(tmp_path)
    for given in (True, str(tmp_path / "checkpoint-3")):
        with pytest.raises(
            ValueError,
            match="remove resume_from_checkpoint, and the search for the last checkpoint",
        ):
            trainer.train(resume_from_checkpoint=given)


def test_a_dataset_without_a_length_is_refused(small: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="needs a dataset with a length"):
        small.a_trainer(tmp_path, train_dataset=small.Stream(), max_steps=2).train()


def test_arguments_that_depend_on_the_group_are_refused(small: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2: remove it"):
        small.a_trainer(tmp_path, gradient_accumulation_steps=2)


def test_a_training_step_that_is_replaced_is_noticed(small: ModuleType, tmp_path: Path) -> None:
    class Replaced(small.ElasticTrainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            loss = model(**inputs).loss
            loss.backward()
            return loss.detach()

    with pytest.raises(RuntimeError, match=r"does not call super\(\)\.training_step"):
        small.a_trainer(tmp_path, Replaced).train()


def test_an_epoch_that_is_left_early_is_refused(small: ModuleType, tmp_path: Path) -> None:
    class Leaves(small.transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_epoch_stop = True

    with pytest.raises(RuntimeError, match="Remove the callback that sets should_epoch_stop"):
        small.a_trainer(tmp_path, callbacks=[Leaves()]).train()


def test_of_an_adapted_model_the_adapter_is_kept(small: ModuleType, tmp_path: Path) -> None:
    """It has the attribute by which PEFT marks models; other frozen weights are kept, too."""
    ends = []
    for mark in ({}, {"default": "LoRA"}):
        folder = tmp_path / str(len(mark))
        for callbacks in ([small.Crashes()], []):
            model = small.small_model(0.0)
            model.transformer.h.requires_grad_(False)
            model.peft_config = mark
            trainer = small.ElasticTrainer(
                model=model,
                args=small.arguments(folder),
                batch_size=6,
                train_dataset=small.Rows(),
                callbacks=callbacks,
            )
            with pytest.raises(OSError, match="samples") if callbacks else nullcontext():
                trainer.train()
            small.close(trainer)
        frozen = model.transformer.h[0].mlp.c_fc.weight.detach().numpy().tobytes()
        files = list((folder / "elastic").rglob("*.elastic"))
        assert files
        assert any(frozen in file.read_bytes() for file in files) is not bool(mark)
        ends.append((trainer.state.global_step, small.losses(trainer)))
    assert ends[0] == ends[1]
    assert len(ends[0][1]) == ends[0][0] == 8
