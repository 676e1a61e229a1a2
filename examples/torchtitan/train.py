"""Trains a tiny Llama with torchtitan's own Trainer on the licence texts of any Debian system.

Two lines of the configuration are not torchtitan's, the data loader and the checkpoint manager. It
uses NCCL on GPUs and gloo on CPUs.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import cpu
import torch
from elastic_torchtitan import ElasticCheckpointManager, ElasticDataLoader
from model import tiny_llama
from torch.utils.data import Dataset
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config.configs import ParallelismConfig, TrainingConfig
from torchtitan.tools.logging import init_logger
from torchtitan.trainer import Trainer

TEXTS = Path("/usr/share/common-licenses")
CHARACTERS = 256


class Characters(BaseTokenizer):
    """A byte is a token."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: "Characters.Config", **other: object) -> None:
        super().__init__()

    def encode(self, text: bytes) -> list[int]:  # type: ignore[override]
        return list(text)

    def decode(self, tokens: list[int]) -> str:  # type: ignore[override]
        return bytes(tokens).decode(errors="replace")

    def get_vocab_size(self) -> int:
        return CHARACTERS


class Windows(Dataset[tuple[dict[str, torch.Tensor], torch.Tensor]]):
    """Windows of the text, each with the window one character on, which the model is to predict."""

    def __init__(self, tokenizer: BaseTokenizer, length: int) -> None:
        files = sorted(file for file in TEXTS.iterdir() if file.is_file() and not file.is_symlink())
        tokens = tokenizer.encode(b"".join(file.read_bytes() for file in files))
        self.windows = torch.tensor(tokens).unfold(0, length + 1, length)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        window = self.windows[index]
        return {"input": window[:-1], "positions": torch.arange(len(window) - 1)}, window[1:]


def configure(
    folder: Path,
    steps: int,
    batch_size: int,
    micro_batch_size: int,
    every: int,
    tensor_parallel: int,
) -> Trainer.Config:
    return Trainer.Config(
        model_spec=tiny_llama(CHARACTERS),
        tokenizer=Characters.Config(),
        dump_folder=str(folder),
        loss=CrossEntropyLoss.Config(global_vocab_size=CHARACTERS),
        optimizer=default_adamw(lr=3e-3),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=10),
        training=TrainingConfig(
            local_batch_size=micro_batch_size,
            global_batch_size=batch_size,
            seq_len=64,
            steps=steps,
            mixed_precision_param="bfloat16" if cpu.ACCELERATOR else "float32",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=-1, tensor_parallel_degree=tensor_parallel
        ),
        metrics=MetricsProcessor.Config(log_freq=1),
        dataloader=ElasticDataLoader.Config(samples=Windows, seed=1),
        checkpoint=ElasticCheckpointManager.Config(
            enable=True, interval=every, keep_latest_k=2, last_save_model_only=False
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=200, help="optimizer steps in all")
    add("--batch-size", type=int, default=24, help="samples per step, of all workers together")
    add("--micro-batch-size", type=int, default=2, help="samples that a worker computes at once")
    add("--checkpoint-dir", type=Path, default=Path("checkpoints"), help="folder all workers share")
    add("--checkpoint-every", type=int, default=20, help="steps between checkpoints")
    add("--tensor-parallel", type=int, default=1, help="ranks that compute a sample together")
    options = parser.parse_args()
    init_logger()
    folder = options.checkpoint_dir / os.environ.get("TORCHELASTIC_RUN_ID", "default")
    sizes = options.batch_size, options.micro_batch_size
    trainer = configure(
        folder, options.steps, *sizes, options.checkpoint_every, options.tensor_parallel
    ).build()
    try:
        trainer.train()
    finally:
        trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
