"""A Trainer and a model that are quick to make and to train, and callbacks."""

from pathlib import Path
from typing import Any

import torch
import transformers
from elastic_pytorch.transformers import ElasticTrainer
from torch.utils.data import Dataset, IterableDataset


class Rows(Dataset[Any]):
    """Rows of tokens, of which each has another number that counts."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(8) * (1 + number % 3) + number) % 16
        return {
            "input_ids": tokens,
            "labels": torch.where(torch.arange(8) < 3 + number % 5, tokens, -100),
        }


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


def a_trainer(
    folder: Path, kind: Any = ElasticTrainer, dropout: float = 0.1, **changed: Any
) -> Any:
    named = {
        name: changed.pop(name)
        for name in ("callbacks", "eval_dataset", "train_dataset")
        if name in changed
    }
    named.setdefault("train_dataset", Rows())
    return kind(
        model=small_model(dropout), args=arguments(folder, **changed), batch_size=6, **named
    )


def losses(trainer: Any) -> list[float]:
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def close(trainer: Any) -> None:
    trainer._elastic_state.close()


class MeanOfSamples(ElasticTrainer):
    """A loss of its own: the mean over the micro-batch."""

    loss_is_scaled_for_ga = False

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(input_ids=inputs["input_ids"])
        loss = torch.nn.functional.cross_entropy(outputs.logits[:, 0], inputs["input_ids"][:, 1])
        return (loss, outputs) if return_outputs else loss


class Stops(transformers.TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        control.should_training_stop = (
            control.should_training_stop or state.global_step == self.step
        )


class Sees(transformers.TrainerCallback):
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


class Crashes(transformers.TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 3:
            raise OSError("the disk of the samples is gone")
