"""Trains small models one after the other, each with a State made where it is trained."""

import argparse
import time

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from events import event
from torch import nn

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--trainings", type=int, default=2)
add("--steps", type=int, default=100)
add("--step-seconds", type=float, default=0.05)
add("--in-process", action="store_true")
options = parser.parse_args()


def train(number: int) -> None:
    model = nn.Linear(2, 1)
    state = elastic.State(
        None, elastic.State.Options(every=1, total_steps=options.steps), model=model, best=0
    )
    event("restored", training=number, step=state.restore(), best=state.best)
    while state.step < options.steps:
        numbers = torch.ones(1)
        dist.all_reduce(numbers)
        event("step", training=number, step=state.step + 1)
        if dist.get_rank() == 0:
            state.best = state.step + 1
        time.sleep(options.step_seconds)
        state.commit()
    event("trained", training=number, best=state.best)


def train_all() -> None:
    dist.init_process_group("gloo")
    for number in range(options.trainings):
        train(number)
    dist.destroy_process_group()


(elastic.in_process(train_all) if options.in_process else train_all)()
