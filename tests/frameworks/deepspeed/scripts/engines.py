"""Gives engines of DeepSpeed to DeepSpeedState, and tells what it says to them.

For four ranks, of which two compute a sample together.
"""

import os
import sys
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import elastic_pytorch as elastic
import torch.distributed as dist
from deepspeed.pipe import PipelineModule
from elastic_pytorch.deepspeed import DeepSpeedState
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
    "checkpoint": {"load_universal": True},
}

deepspeed.init_distributed("gloo")
mesh = elastic.unit_mesh(("tp",), (2,))


class Parallelism:
    """What DeepSpeed asks of a model's own parallelism: ranks, those of its data, and groups."""

    def __getattr__(self, name: str) -> Any:
        dimension, _, what = name.removeprefix("get_").partition("_parallel_")
        one = mesh["replicate" if dimension == "data" else "tp"]
        answers = {
            "rank": one.get_local_rank(),
            "world_size": one.size(),
            "group": one.get_group(),
            "src_rank": one.mesh.flatten()[0].item(),
            "group_ranks": one.mesh.tolist(),
        }
        if dimension not in ("data", "model", "tensor_model") or what not in answers:
            raise AttributeError(name)
        return lambda: answers[what]


def tell(kind: str, model: nn.Module, sampler: elastic.ElasticSampler, **options: Any) -> None:
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), config=CONFIG, **options
    )
    try:
        DeepSpeedState(
            sys.argv[1], engine, DeepSpeedState.Options(name=kind, every=1), sampler=sampler
        )
        said = "taken"
    except ValueError as error:
        said = str(error)
    sys.stdout.write(f"{kind}: {said}\n")
    sys.stdout.flush()


everywhere = elastic.ElasticSampler(12, 4)
tell("tensors", nn.Linear(2, 2), everywhere, mpu=Parallelism())
tell(
    "mesh",
    nn.Linear(2, 2),
    elastic.ElasticSampler(12, 4, mesh=mesh["replicate"]),
    mpu=Parallelism(),
)
tell(
    "pipeline",
    PipelineModule(
        [nn.Linear(2, 2), nn.Linear(2, 2)], num_stages=2, loss_fn=nn.functional.mse_loss
    ),
    everywhere,
)
dist.destroy_process_group()
