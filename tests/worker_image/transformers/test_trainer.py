"""The elastic Trainer in one process: what it computes, what it does beside that, and what it refuses."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: `make venv` installs what the tests need"
)

import torch  # noqa: E402
from elastic_pytorch.transformers import ElasticTrainer, ElasticTrainerMixin  # noqa: E402
from torch.utils.data import Dataset, IterableDataset  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.process]


class Rows(Dataset[Any]):
    """Rows of tokens, of which each has another number that counts."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(8) * (1 + number % 3) + number) % 16
        return {"input_ids": tokens, "labels": torch.where(torch.arange(8) < 3 + number % 5, tokens, -100)}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(Rows())


def arguments(folder: Path, **changed: Any) -> Any:
    settings = {
        "use_cpu": True,
        "seed": 3,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 3,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "report_to": [],
        "dataloader_pin_memory": False,
    }
    return transformers.TrainingArguments(output_dir=str(folder), **{**settings, **changed})


def small_model(dropout: float = 0.1) -> Any:
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=16,
        n_positions=8,
        n_embd=8,
        n_layer=1,
        n_head=1,
        bos_token_id=None,
        eos_token_id=None,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout),
    )
    return transformers.GPT2LMHeadModel(config)


def a_trainer(folder: Path, kind: Any = ElasticTrainer, dropout: float = 0.1, **changed: Any) -> Any:
    named = {name: changed.pop(name) for name in ("callbacks", "eval_dataset", "train_dataset") if name in changed}
    named.setdefault("train_dataset", Rows())
    return kind(model=small_model(dropout), args=arguments(folder, **changed), batch_size=6, **named)


def losses(trainer: Any) -> list[float]:
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def close(trainer: Any) -> None:
    """Ends what a process of its own would end by its exit."""
    trainer._elastic_state.close()


def test_the_library_imports_transformers_only_when_asked_to() -> None:
    code = "import sys, elastic_pytorch, elastic_pytorch.transformers; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_steps_are_those_of_the_stock_trainer_with_the_same_batches(tmp_path: Path) -> None:
    """Without dropout, and in the dataset's order: then batches and losses are comparable."""
    order = {"dropout": 0.0, "train_sampling_strategy": "sequential"}
    elastic = a_trainer(tmp_path / "elastic", **order)
    elastic.train()
    stock = transformers.Trainer(
        model=small_model(0.0),
        args=arguments(tmp_path / "stock", gradient_accumulation_steps=2, train_sampling_strategy="sequential"),
        train_dataset=Rows(),
    )
    stock.train()
    assert losses(elastic) == pytest.approx(losses(stock), abs=1e-5)
    assert elastic.state.max_steps == stock.state.max_steps == 8
    rates = [[line["learning_rate"] for line in each.state.log_history if "loss" in line] for each in (elastic, stock)]
    assert rates[0] == pytest.approx(rates[1])


def test_the_size_of_a_micro_batch_changes_nothing(tmp_path: Path) -> None:
    trainers = [a_trainer(tmp_path / str(size), dropout=0.0, per_device_train_batch_size=size) for size in (1, 4, 6)]
    for trainer in trainers:
        trainer.train()
    assert losses(trainers[0]) == pytest.approx(losses(trainers[1]), abs=1e-5)
    assert losses(trainers[0]) == pytest.approx(losses(trainers[2]), abs=1e-5)


class MeanOfSamples(ElasticTrainer):
    """A loss of its own: the mean over the micro-batch."""

    loss_is_scaled_for_ga = False

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        outputs = model(input_ids=inputs["input_ids"])
        loss = torch.nn.functional.cross_entropy(outputs.logits[:, 0], inputs["input_ids"][:, 1])
        return (loss, outputs) if return_outputs else loss


def test_a_loss_that_is_a_mean_over_samples_is_weighted_by_them(tmp_path: Path) -> None:
    trainers = [a_trainer(tmp_path / str(size), MeanOfSamples, 0.0, per_device_train_batch_size=size) for size in (4, 6)]
    for trainer in trainers:
        trainer.train()
    assert losses(trainers[0]) == pytest.approx(losses(trainers[1]), abs=1e-5)


def test_a_loss_of_which_it_is_not_known_what_it_is_is_refused(tmp_path: Path) -> None:
    class Unknown(MeanOfSamples):
        loss_is_scaled_for_ga = None

    with pytest.raises(ValueError, match="Unknown has its own compute_loss: set loss_is_scaled_for_ga = False in the class"):
        a_trainer(tmp_path, Unknown)


class Stops(transformers.TrainerCallback):  # type: ignore[misc]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        control.should_training_stop = control.should_training_stop or state.global_step == self.step


class Sees(transformers.TrainerCallback):  # type: ignore[misc]
    """Collects what a user's callback is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float]] = []
        self.evaluated: list[int] = []
        self.saved: list[int] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.steps.append((state.global_step, state.epoch))

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.evaluated.append(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.saved.append(state.global_step)


def test_a_training_that_a_callback_has_ended_is_not_taken_up_again(tmp_path: Path) -> None:
    first = a_trainer(tmp_path, callbacks=[Stops(3)])
    first.train()
    close(first)
    second = a_trainer(tmp_path, callbacks=[Stops(3)])
    second.train()
    assert second.state.global_step == 3
    assert losses(second) == losses(first)


def test_evaluations_and_checkpoints_come_where_they_come_without_it(tmp_path: Path) -> None:
    sees = Sees()
    trainer = a_trainer(
        tmp_path, callbacks=[sees], eval_dataset=Rows(), eval_strategy="epoch", save_strategy="steps", save_steps=3
    )
    trainer.train()
    assert sees.steps == [(step, step / 4) for step in range(1, 9)]
    assert sees.evaluated == [4, 8]
    assert sees.saved == [3, 6, 8]
    assert (tmp_path / "checkpoint-6" / "trainer_state.json").exists()


def test_max_steps_end_the_training_within_an_epoch(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path, max_steps=6, bf16=True)
    trainer.train()
    assert trainer.state.global_step == 6
    assert trainer.state.epoch == 1.5


def test_a_second_training_begins_anew(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path)
    trainer.train()
    trainer.train()
    assert trainer.state.global_step == 8
    assert len(losses(trainer)) == 8
    assert trainer.lr_scheduler.last_epoch == 8


def test_the_mixin_makes_other_trainers_elastic(tmp_path: Path) -> None:
    class MyTrainer(ElasticTrainerMixin, transformers.Seq2SeqTrainer):  # type: ignore[misc]
        pass

    settings = transformers.Seq2SeqTrainingArguments(**arguments(tmp_path, max_steps=2).to_dict() | {"use_cpu": True})
    trainer = MyTrainer(model=small_model(), args=settings, train_dataset=Rows(), batch_size=6)
    trainer.train()
    assert trainer.state.global_step == 2


def test_names_of_its_own_are_prefixed(tmp_path: Path) -> None:
    """A plain name may be that of something else in a script's subclass, or in a later release of transformers."""
    elastic = a_trainer(tmp_path / "elastic", max_steps=1)
    stock = transformers.Trainer(model=small_model(), args=arguments(tmp_path / "stock", max_steps=1), train_dataset=Rows())
    for trainer in (elastic, stock):
        trainer.train()
    own = (set(dir(ElasticTrainerMixin)) | set(vars(elastic))) - set(dir(stock))
    assert {name for name in own if not name.startswith(("_elastic_", "__"))} == set()


def test_a_checkpoint_to_resume_from_is_refused(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path)
    for given in (True, str(tmp_path / "checkpoint-3")):
        with pytest.raises(ValueError, match="remove resume_from_checkpoint, and the search for the last checkpoint"):
            trainer.train(resume_from_checkpoint=given)


def test_a_dataset_without_a_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="needs a dataset with a length"):
        a_trainer(tmp_path, train_dataset=Stream(), max_steps=2).train()


def test_arguments_that_depend_on_the_group_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2: remove it"):
        a_trainer(tmp_path, gradient_accumulation_steps=2)


def test_a_training_step_that_is_replaced_is_noticed(tmp_path: Path) -> None:
    class Replaced(ElasticTrainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            loss = model(**inputs).loss
            loss.backward()
            return loss.detach()

    with pytest.raises(RuntimeError, match=r"does not call super\(\)\.training_step"):
        a_trainer(tmp_path, Replaced).train()


def test_an_epoch_that_is_left_early_is_refused(tmp_path: Path) -> None:
    class Leaves(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_epoch_stop = True

    with pytest.raises(RuntimeError, match="Remove the callback that sets should_epoch_stop"):
        a_trainer(tmp_path, callbacks=[Leaves()]).train()


class Crashes(transformers.TrainerCallback):  # type: ignore[misc]
    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 3:
            raise OSError("the disk of the samples is gone")


def test_of_an_adapted_model_the_adapter_is_kept(tmp_path: Path) -> None:
    """A model with the attribute by which PEFT marks its models; another one with frozen weights is kept as a whole."""
    ends = []
    for mark in ({}, {"default": "LoRA"}):
        folder = tmp_path / str(len(mark))
        for callbacks in ([Crashes()], []):
            model = small_model(0.0)
            model.transformer.h.requires_grad_(False)
            model.peft_config = mark
            trainer = ElasticTrainer(
                model=model, args=arguments(folder), batch_size=6, train_dataset=Rows(), callbacks=callbacks
            )
            with pytest.raises(OSError, match="samples") if callbacks else nullcontext():
                trainer.train()
            close(trainer)
        frozen = model.transformer.h[0].mlp.c_fc.weight.detach().numpy().tobytes()
        files = list((folder / "elastic").rglob("*.elastic"))
        assert files
        assert any(frozen in file.read_bytes() for file in files) is not bool(mark)
        ends.append((trainer.state.global_step, losses(trainer)))
    assert ends[0] == ends[1]
    assert len(ends[0][1]) == ends[0][0] == 8
