"""Trains small models one after the other, each with a State made where it is trained."""

import argparse
import time

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from events import event
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--in-process", action="store_true")
options = parser.parse_args()
TRAININGS, STEPS = 2, 100


def train(number: int) -> None:
    model = nn.Linear(2, 1)
    state = elastic.State(
        None, elastic.State.Options(every=1, total_steps=STEPS), model=model, best=0
    )
    event("restored", training=number, step=state.restore(), best=state.best)
    while state.step < STEPS:
        numbers = torch.ones(1)
        dist.all_reduce(numbers)
        event("step", training=number, step=state.step + 1)
        if dist.get_rank() == 0:
            state.best = state.step + 1
        time.sleep(0.05)
        state.commit()


def train_all() -> None:
    dist.init_process_group("gloo")
    for number in range(TRAININGS):
        train(number)
    dist.destroy_process_group()


(elastic.in_process(train_all) if options.in_process else train_all)()
