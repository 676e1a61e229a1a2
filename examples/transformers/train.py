"""Train a small GPT-2 with the Trainer of transformers, in a group whose size may change."""

import argparse
from pathlib import Path

import torch
from elastic_pytorch.transformers import ElasticTrainer
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, set_seed

TEXTS = Path("/usr/share/common-licenses")  # on every Debian system


class Windows(Dataset):
    """Windows of a text. Models of transformers shift them to the next character themselves."""

    def __init__(self, text: torch.Tensor, context: int) -> None:
        self.windows = text.unfold(0, context, context // 2)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.windows[index], "labels": self.windows[index]}


def load_text(folder: Path) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Read a folder's texts as numbers: to train on, to hold out, and the number of characters."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.is_symlink())
    text = torch.frombuffer(
        bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8
    )
    vocabulary, numbers = torch.unique(text, return_inverse=True)
    held_out = len(numbers) // 10
    return numbers[:-held_out], numbers[-held_out:], len(vocabulary)


def main() -> None:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--output-dir", default="output")
    add("--texts", type=Path, default=TEXTS)
    add("--context", type=int, default=64)
    add("--batch-size", type=int, default=48, help="samples of a step, of all workers together")
    add("--max-steps", type=int, default=400)
    options = parser.parse_args()

    set_seed(1)
    text, held_out_text, characters = load_text(options.texts)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=characters,
            n_positions=options.context,
            n_embd=64,
            n_layer=2,
            n_head=4,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    on_gpu = torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=options.output_dir,
        max_steps=options.max_steps,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=32,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=options.max_steps // 20,
        weight_decay=0.1,
        bf16=on_gpu,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="no",
        use_cpu=not on_gpu,
        ddp_backend="nccl" if on_gpu else "gloo",
        dataloader_pin_memory=on_gpu,
        disable_tqdm=True,
        report_to=[],
    )
    trainer = ElasticTrainer(
        model=model,
        args=arguments,
        train_dataset=Windows(text, options.context),
        eval_dataset=Windows(held_out_text, options.context),
        batch_size=options.batch_size,
    )
    trainer.train()
    trainer.save_model(f"{options.output_dir}/model")


if __name__ == "__main__":
    main()
