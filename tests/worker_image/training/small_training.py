"""A small training with `elastic.steps`, of which a test leaves out or doubles something."""

from collections.abc import Iterator
from typing import Any

import elastic_pytorch as elastic
import torch
from elastic_pytorch.training.step import Step
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.arange(12.0).reshape(12, 1))


class Training:
    def __init__(self, *, micro_batch_size: int | None = None) -> None:
        self.sampler = elastic.ElasticSampler(
            DATA, 4, micro_batch_size=micro_batch_size, shuffle=False
        )
        self.loader: Any = DataLoader(DATA, batch_sampler=self.sampler)
        self.model = nn.Linear(1, 1)
        nn.init.ones_(self.model.weight)
        nn.init.zeros_(self.model.bias)
        self.optimizer = SGD(self.model.parameters(), lr=0.0)
        self.state = Told(model=self.model, optimizer=self.optimizer, sampler=self.sampler)
        self.state.restore()

    def steps(self, **options: Any) -> Iterator[Step]:
        return elastic.steps(
            self.state, **{"loader": self.loader, "model": self.model, "epochs": 1, **options}
        )

    def loss(self, batch: Any) -> Tensor:
        loss: Tensor = self.model(*batch).mean()
        return loss

    def backward(self, step: Step, count: int | None = None) -> None:
        self.optimizer.zero_grad()
        for batch in step.parts:
            step.backward(self.loss(batch), count=count)

    def do(self, step: Step) -> None:
        self.backward(step)
        self.optimizer.step()


class Told(elastic.State):
    def __init__(self, **registered: Any) -> None:
        super().__init__(None, **registered)
        self._told: list[float] = []

    def _end_step(self, *, loss: Any = None) -> None:
        self._told.append(float(loss))
        super()._end_step(loss=loss)

    def losses(self) -> list[float]:
        return self._told
