"""Which training arguments an elastic Trainer refuses, and what to do instead."""

from collections.abc import Callable
from operator import not_
from typing import Any

# By argument: which values mean the same in a group of another size, and what to do instead.
REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "gradient_accumulation_steps": (
        lambda value: value == 1,
        "remove it: batch_size is the batch of all workers, and per_device_train_batch_size what "
        "one computes at once. How many of these a worker accumulates follows from the size of the "
        "group",
    ),
    "enable_jit_checkpoint": (
        not_,
        "remove it: before a change all ranks stop after the same step, and that step is kept. "
        "A handler of SIGTERM would only delay the change",
    ),
    "auto_find_batch_size": (
        not_,
        "remove it, and set per_device_train_batch_size to what fits: "
        "each group would find another size",
    ),
    "train_sampling_strategy": (
        lambda value: value in {"random", "sequential"},
        'use "random" or "sequential": other orders depend on the size of the group',
    ),
    "group_by_length": (
        not_,
        "remove it: that order depends on the size of the group",
    ),
    "average_tokens_across_devices": (
        bool,
        "leave it on: the workers' shares of a batch may be uneven. Or use the stock Trainer, "
        "and set spec.resizePolicy.allowedReplicas to sizes that divide the batch",
    ),
    "dataloader_in_order": (
        bool,
        "leave it on: a batch would meet the weight of another one",
    ),
    "fsdp": (
        not_,
        "remove it: the committed state is one that each rank has all of. "
        "For FSDP2 write the loop with elastic_pytorch.State",
    ),
    "deepspeed": (
        not_,
        "remove it: no rank has all of what ZeRO shards",
    ),
    "parallelism_config": (
        lambda value: value is None,
        "remove it: the batch is distributed to all ranks, each with the whole model",
    ),
    "n_gpu": (
        lambda value: value <= 1,
        "start the script with torchrun, one process for each GPU, "
        "or show it one GPU by CUDA_VISIBLE_DEVICES",
    ),
}

RESUME = (
    "remove resume_from_checkpoint, and the search for the last checkpoint: "
    "ElasticTrainer continues from the newest state of the group by itself. "
    "A checkpoint of Trainer counts batches of the size that the group had. "
    "To begin with its weights, load it by from_pretrained"
)


def check_arguments(arguments: Any) -> None:
    wrong = [
        f"{name}={getattr(arguments, name)!r}: {advice}"
        for name, (fits, advice) in REFUSED.items()
        if hasattr(arguments, name) and not fits(getattr(arguments, name))
    ]
    if wrong:
        raise ValueError(
            f"ElasticTrainer does not take these training arguments. {'. '.join(wrong)}"
        )
