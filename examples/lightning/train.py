"""Trains a small language model with Lightning, on a group of workers whose size changes."""

import argparse
import os
from pathlib import Path

import elastic_pytorch as elastic
import lightning as L  # noqa: N812 - as Lightning's own documentation has it
from lightning.pytorch.callbacks import ModelCheckpoint
from model import CharLM, PrintSteps
from text import load_text
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=400, help="optimizer steps in all")
    add("--checkpoint-dir", type=Path, default=Path("checkpoints"), help="folder all workers share")
    options = parser.parse_args()

    L.seed_everything(1)
    training, validation, vocabulary = load_text()
    model = CharLM(vocabulary, options.steps)
    folder = options.checkpoint_dir / os.environ.get("TORCHELASTIC_RUN_ID", "default")
    best = ModelCheckpoint(folder / "best", monitor="validation_loss")
    trainer = L.Trainer(
        **elastic.lightning.options(folder, batch_size=48, callbacks=[best, PrintSteps()]),
        max_steps=options.steps,
        max_epochs=-1,
        val_check_interval=1.0,
        logger=False,
        enable_progress_bar=False,
    )
    loader = DataLoader(training, batch_size=16, shuffle=True)
    trainer.fit(model, loader, DataLoader(validation, batch_size=16))


if __name__ == "__main__":
    main()
