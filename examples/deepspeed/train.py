"""Trains a small language model with DeepSpeed's ZeRO on the licence texts of any Debian system.

The script uses NCCL on GPUs, and gloo on CPUs (DS_ACCELERATOR=cpu).
"""

import argparse
import os
from pathlib import Path

import deepspeed
import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from elastic_pytorch.deepspeed import DeepSpeedState
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

CONTEXT, WIDTH = 64, 64


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a folder's texts, each with the window one character on, as what to predict."""

    def __init__(self, folder: Path) -> None:
        files = sorted(
            file for file in folder.iterdir() if file.is_file() and not file.is_symlink()
        )
        text = torch.frombuffer(
            bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8
        )
        self.windows = text.long().unfold(0, CONTEXT + 1, CONTEXT)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.windows[index]
        return window[:-1], window[1:]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(256, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, characters: Tensor) -> Tensor:
        places = self.places(torch.arange(characters.shape[1], device=characters.device))
        mask = nn.Transformer.generate_square_subsequent_mask(
            characters.shape[1], device=characters.device
        )
        return self.head(
            self.layers(self.characters(characters) + places, mask=mask, is_causal=True)
        )


@record
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=2, help="times that each sample is seen")
    add("--batch-size", type=int, default=48, help="samples per step, of all workers together")
    add("--micro-batch-size", type=int, default=8, help="samples that a worker computes at once")
    add("--text", type=Path, default=Path("/usr/share/common-licenses"), help="folder of texts")
    add(
        "--config",
        default=str(Path(__file__).parent / "ds_config.json"),
        help="DeepSpeed's configuration",
    )
    add("--checkpoint-dir", type=Path, default=Path("checkpoints"), help="folder all workers share")
    add("--checkpoint-every", type=int, default=20, help="steps between checkpoints")
    options = parser.parse_args()

    torch.manual_seed(1)
    samples = Windows(options.text)
    model = Model()
    deepspeed.init_distributed()
    sampler = elastic.ElasticSampler(
        samples, options.batch_size, micro_batch_size=options.micro_batch_size, seed=1
    )
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=options.config
    )
    state = DeepSpeedState(
        options.checkpoint_dir / os.environ.get("TORCHELASTIC_RUN_ID", "default"),
        engine,
        DeepSpeedState.Options(
            every=options.checkpoint_every, total_steps=options.epochs * sampler.batches_per_epoch
        ),
        sampler=sampler,
    )
    state.restore()
    loader = DataLoader(samples, batch_sampler=sampler)
    device = torch.device(get_accelerator().current_device_name())
    if dist.get_rank() == 0:
        print(f"start at step {state.step}  workers {dist.get_world_size()}", flush=True)
    for _ in sampler.epochs(options.epochs):
        for inputs, targets in loader:
            with sampler.part() as part:
                engine.set_gradient_accumulation_boundary(part.last)
                loss = functional.cross_entropy(
                    engine(inputs.to(device)).flatten(0, 1), targets.to(device).flatten()
                )
                engine.backward(part.weight * loss, scale_wrt_gas=False)
            engine.step()
            if part.last:
                state.commit(loss=loss)
                if dist.get_rank() == 0 and state.step % 10 == 0:
                    print(
                        f"step {state.step}  loss {loss:.3f}  workers {dist.get_world_size()}",
                        flush=True,
                    )
    if dist.get_rank() == 0:
        print(f"done at step {state.step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
