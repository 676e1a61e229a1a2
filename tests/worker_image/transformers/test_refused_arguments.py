from dataclasses import dataclass
from typing import Any

import pytest
from elastic_pytorch.transformers.refused_arguments import check_arguments


@dataclass
class Arguments:
    """The TrainingArguments of transformers, as far as they can be refused, with their defaults."""

    gradient_accumulation_steps: int = 1
    enable_jit_checkpoint: bool = False
    auto_find_batch_size: bool = False
    train_sampling_strategy: str = "random"
    average_tokens_across_devices: bool = True
    dataloader_in_order: bool = True
    fsdp: Any = None
    deepspeed: Any = None
    parallelism_config: Any = None
    n_gpu: int = 0


@pytest.mark.parametrize(
    "arguments",
    [Arguments(), object(), Arguments(train_sampling_strategy="sequential")],
    ids=["the defaults", "of a release without them", "the dataset's order"],
)
def test_what_means_the_same_in_any_group_is_accepted(arguments: object) -> None:
    check_arguments(arguments)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"gradient_accumulation_steps": 4},
            "=4: remove it: batch_size is the batch of all workers",
        ),
        ({"enable_jit_checkpoint": True}, "enable_jit_checkpoint=True: remove it"),
        ({"auto_find_batch_size": True}, "set per_device_train_batch_size to what fits"),
        ({"train_sampling_strategy": "group_by_length"}, "='group_by_length': use \"random\""),
        ({"average_tokens_across_devices": False}, r"spec.resizePolicy.allowedReplicas"),
        ({"dataloader_in_order": False}, "dataloader_in_order=False: leave it on"),
        ({"fsdp": "full_shard"}, "elastic_pytorch.State"),
        ({"deepspeed": "zero3.json"}, "deepspeed='zero3.json': remove it"),
        ({"parallelism_config": "tp"}, "parallelism_config='tp': remove it"),
        ({"n_gpu": 2}, "n_gpu=2: start the script with torchrun"),
    ],
)
def test_what_depends_on_the_size_of_the_group_is_refused(
    changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match="does not take these training arguments") as refused:
        check_arguments(Arguments(**changed))
    assert words in str(refused.value)


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="enable_jit_checkpoint=True") as refused:
        check_arguments(Arguments(enable_jit_checkpoint=True, gradient_accumulation_steps=2))
    assert "gradient_accumulation_steps=2" in str(refused.value)
