"""Trains with the Trainer of transformers, and tells which samples each step has taken."""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ["SCRIPTS"])

import torch
from events import event
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

parser = argparse.ArgumentParser()
add = parser.add_argument
add(
    "--stock",
    action="store_true",
    help="the Trainer as it is: checkpoints, and resume_from_checkpoint",
)
add("--folder", default="output")
add("--step-seconds", type=float, default=0.02)
options = parser.parse_args()
SAMPLES, BATCH = 250, 12


class Numbers(torch.utils.data.Dataset):
    """Rows of tokens of different lengths, so that no two micro-batches have as many."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        length = 4 + number % 9
        tokens = (torch.arange(12) * (1 + number % 5) + number) % 32
        labels = torch.where(torch.arange(12) < length, tokens, -100)
        return {"input_ids": tokens, "labels": labels, "number": number}


class Noted:
    """Tells of each micro-batch that is trained on. It overrides what scripts override."""

    taken: list[int]

    def training_step(self, model, inputs, num_items_in_batch=None):
        numbers = inputs.pop("number").tolist()
        if self.state.global_step != getattr(self, "noted_step", None):
            self.noted_step, self.taken = self.state.global_step, []
        loss = super().training_step(model, inputs, num_items_in_batch)
        if getattr(self, "_trains_on_samples", True):
            self.taken += numbers
        return loss


class Told(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **more):
        # The gradients have been exchanged: a rank that is killed after that has done its share.
        event("step", step=state.global_step + 1, samples=trainer.taken, start=STARTED)

    def on_log(self, args, state, control, logs=None, **more):
        event("log", step=state.global_step, logs=logs, epoch=state.epoch)

    def on_step_end(self, args, state, control, **more):
        time.sleep(options.step_seconds)


STARTED = time.time()
torch.manual_seed(5)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
world = int(os.environ["WORLD_SIZE"])
arguments = TrainingArguments(
    output_dir=options.folder,
    use_cpu=True,
    ddp_backend="gloo",
    seed=3,
    num_train_epochs=2,
    per_device_train_batch_size=BATCH // 3 if options.stock else 2,
    learning_rate=5e-3,
    lr_scheduler_type="cosine",
    warmup_steps=5,
    logging_steps=3,
    save_strategy="steps" if options.stock else "no",
    save_steps=5,
    eval_strategy="no" if options.stock else "steps",
    eval_steps=7,
    per_device_eval_batch_size=4,
    remove_unused_columns=False,
    dataloader_pin_memory=False,
    disable_tqdm=True,
    report_to=[],
)
settings = {"model": model, "args": arguments, "train_dataset": Numbers(), "callbacks": [Told()]}
if options.stock:

    class StockTrainer(Noted, Trainer):
        pass

    trainer = StockTrainer(**settings)
    last = get_last_checkpoint(options.folder) if Path(options.folder).is_dir() else None
    event("restored", step=int(last.rsplit("-")[-1]) if last else 0)
    trainer.train(resume_from_checkpoint=last)
else:
    from elastic_pytorch.transformers import ElasticTrainer

    class NotedTrainer(Noted, ElasticTrainer):
        @property
        def _trains_on_samples(self):
            return self._elastic_sampler.counted_samples[self._elastic_sampler._micro - 1] > 0

    rows = [
        {name: values for name, values in Numbers()[number].items() if name != "number"}
        for number in range(20)
    ]
    trainer = NotedTrainer(**settings, batch_size=BATCH, every=1, eval_dataset=rows)
    trainer.train()
digest = hashlib.sha256(
    b"".join(p.detach().numpy().tobytes() for p in model.parameters())
).hexdigest()
event(
    "done",
    digest=digest,
    parameters=[x for p in model.parameters() for x in p.flatten().tolist()],
    step=trainer.state.global_step,
    history=trainer.state.log_history,
)
