"""Writes the weights of a checkpoint to a safetensors file, on one process, without a group.

    python examples/export/to_safetensors.py /checkpoints/run model.safetensors python
    examples/export/to_safetensors.py s3://bucket/run model.safetensors --entry ema python
    examples/export/to_safetensors.py /checkpoints/run adapter.safetensors --entry model/trained

The first argument is the folder or the URL that State was given, or one checkpoint in it.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import torch
from safetensors.torch import save_file


def entry_of(checkpoint: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns what was registered with State under a name; behind a slash comes a part of it.

    Raises:
        SystemExit: there is none.
    """
    found: Any = checkpoint
    for part in name.split("/"):
        if not isinstance(found, Mapping) or part not in found:
            there = (
                ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
            )
            raise SystemExit(f"the checkpoint has no {name}: {part} is not among {there}")
        found = found[part]
    if not isinstance(found, Mapping):
        raise SystemExit(f"{name} is no dict of tensors, but of the type {type(found).__name__}")
    return found


def weights_of(entry: Mapping[str, Any], name: str) -> dict[str, torch.Tensor]:
    """Returns the tensors.

    Raises:
        SystemExit: there are parts that are dicts themselves, or no tensors.
    """
    if parts := [key for key, value in entry.items() if isinstance(value, Mapping) and value]:
        raise SystemExit(
            f"{name} has parts, of which one file holds one: "
            f"choose --entry {name}/{parts[0]}, for example"
        )
    tensors: dict[str, torch.Tensor] = {}
    for key, value in entry.items():
        if isinstance(value, torch.Tensor):
            tensors[key] = value.contiguous()
        else:
            print(f"{key} is left out: it is no tensor, but of the type {type(value).__name__}")
    if not tensors:
        raise SystemExit(f"{name} has no tensors")
    return tensors


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("checkpoint", help="a folder of checkpoints, one checkpoint, or the URL of either")
    add("target", type=Path)
    add(
        "--entry",
        default="model",
        help="the name under which the model was registered (default: model)",
    )
    options = parser.parse_args(words)
    checkpoint = elastic.load(options.checkpoint)
    tensors = weights_of(entry_of(checkpoint, options.entry), options.entry)
    save_file(tensors, options.target, {"format": "pt", "step": str(checkpoint["step"])})
    print(f"step {checkpoint['step']}: {len(tensors)} tensors in {options.target}")


if __name__ == "__main__":
    main()
