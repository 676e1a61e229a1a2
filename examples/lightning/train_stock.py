"""Trains a small language model as Lightning's documentation teaches: nothing in it is elastic."""

import argparse
import os
from pathlib import Path

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
    add("--nodes", type=int, default=1, help="number of machines")
    add("--checkpoint-dir", type=Path, default=Path("checkpoints"), help="folder all nodes share")
    options = parser.parse_args()

    L.seed_everything(1)
    training, validation, vocabulary = load_text()
    model = CharLM(vocabulary, options.steps)
    checkpoints = ModelCheckpoint(options.checkpoint_dir, every_n_train_steps=50, save_last=True)
    trainer = L.Trainer(
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=options.nodes,
        callbacks=[checkpoints, PrintSteps()],
        max_steps=options.steps,
        max_epochs=-1,
        val_check_interval=1.0,
        logger=False,
        enable_progress_bar=False,
    )
    loader = DataLoader(training, batch_size=16, shuffle=True)
    trainer.fit(model, loader, DataLoader(validation, batch_size=16), ckpt_path="last")


if __name__ == "__main__":
    main()
