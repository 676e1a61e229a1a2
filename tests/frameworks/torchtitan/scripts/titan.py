"""Trains the example's model with torchtitan, and tells which samples each step has taken."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import cpu
import torch
from elastic_torchtitan import ElasticCheckpointManager, ElasticDataLoader, Sample
from events import event
from model import tiny_llama
from torch.utils.data import Dataset
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config.configs import ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer

LENGTH = 16
parser = argparse.ArgumentParser()
add = parser.add_argument
add("--folder", required=True)
add("--every", type=int, required=True)
add("--commit-every", type=int)
add("--samples", type=int, required=True)
add("--batch-size", type=int, required=True)
add("--steps", type=int, required=True)
add("--step-seconds", type=float, default=0.5)
options = parser.parse_args()


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: "NoTokenizer.Config", **other: object) -> None:
        super().__init__()

    def encode(self, text: str) -> list[int]:
        return []

    def decode(self, tokens: list[int]) -> str:
        return ""

    def get_vocab_size(self) -> int:
        return 256


class Numbers(Dataset[Sample]):
    """Sequences that count up; the first token is the number of the sample."""

    def __init__(self, tokenizer: object, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return options.samples

    def __getitem__(self, index: int) -> Sample:
        tokens = (index * torch.arange(1, self.length + 2)) % 256
        return {"input": tokens[:-1], "positions": torch.arange(self.length)}, tokens[1:]


class Told(MetricsProcessor):
    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        pass

    loss = 0.0

    def log(self, step: int, global_avg_loss: float, *more: object, **named: object) -> None:
        super().log(step, global_avg_loss, *more, **named)
        self.loss = global_avg_loss


class ToldTrainer(Trainer):
    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    def train_step(self, data_iterator: Iterator[Sample]) -> None:
        taken: list[int] = []

        def told() -> Iterator[Sample]:
            for inputs, labels in data_iterator:
                taken.extend(inputs["input"][:, 0].tolist())
                yield inputs, labels

        super().train_step(told())
        event("step", step=self.step, samples=taken, loss=self.metrics_processor.loss)
        time.sleep(options.step_seconds)


config = ToldTrainer.Config(
    model_spec=tiny_llama(256),
    tokenizer=NoTokenizer.Config(),
    dump_folder=options.folder,
    loss=CrossEntropyLoss.Config(global_vocab_size=256),
    optimizer=default_adamw(lr=1e-3),
    lr_scheduler=LRSchedulersContainer.Config(warmup_steps=10),
    training=TrainingConfig(
        local_batch_size=1,
        global_batch_size=options.batch_size,
        seq_len=LENGTH,
        steps=options.steps,
        mixed_precision_param="bfloat16" if cpu.ACCELERATOR else "float32",
        disable_cuda_graphs=True,
    ),
    parallelism=ParallelismConfig(data_parallel_shard_degree=-1),
    metrics=Told.Config(log_freq=1),
    dataloader=ElasticDataLoader.Config(samples=Numbers, seed=3),
    checkpoint=ElasticCheckpointManager.Config(
        enable=True,
        interval=options.every,
        commit_every=options.commit_every,
        keep_latest_k=2,
        last_save_model_only=False,
    ),
)
torch.manual_seed(5)
trainer = config.build()
trainer.train()
trainer.close()
event("done", step=trainer.step)
torch.distributed.destroy_process_group()
