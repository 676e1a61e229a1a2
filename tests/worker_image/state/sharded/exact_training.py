"""A sharded training whose elements equal an undisturbed process's, to the last bit, at any size.

No element depends on another one, so it does not matter which rank has it. Each rank computes all
of the undisturbed training beside its own part. It draws random numbers in each step, and writes
down which state its generator then has. Needs no FSDP2.
"""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from elastic_pytorch.state.source import NONE
from elastic_pytorch.state.values.rng_state import mixed
from elastic_pytorch.state_format.state_version import StateVersion
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.optim import AdamW

ROWS, COLUMNS = 11, 3  # with seven ranks, the last one has no row


class Records:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, kind: str, version: Sequence[int], value: str = "") -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        with (self._folder / f"rank-{rank}").open("a") as file:
            file.write(json.dumps([kind, *version, rank, world, value]) + "\n")

    def all(self, kind: str) -> list[tuple[StateVersion, int, int, str]]:
        """What is written of a kind: the version, the rank, its group's size, and the value."""
        lines = [
            line
            for path in self._folder.glob("rank-*")
            for line in path.read_text().splitlines(keepends=True)
        ]
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [
            (StateVersion(*each[1:3]), each[3], each[4], each[5])
            for each in found
            if each[0] == kind
        ]

    def sealed(self) -> StateVersion:
        """The newest version of which a rank knew that all copies of it were whole."""
        return max((version for version, *_ in self.all("sealed")), default=NONE)


class Undisturbed:
    """All of the training, in one process."""

    def __init__(self) -> None:
        self.step = 0
        self.weight = nn.Parameter(torch.ones(ROWS, COLUMNS, dtype=torch.float64))
        self.optimizer = AdamW([self.weight], lr=0.01, foreach=False)

    def load(self, path: Path, step: int) -> None:
        """Goes on from a file, unless that is beyond a step."""
        if path.exists() and (saved := torch.load(path))["step"] <= step:
            self.step, self.weight.data = saved["step"], saved["weight"]
            self.optimizer.load_state_dict(saved["optimizer"])

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial")
        torch.save(
            {
                "step": self.step,
                "weight": self.weight.data,
                "optimizer": self.optimizer.state_dict(),
            },
            partial,
        )
        partial.rename(path)

    def advance(self, step: int) -> None:
        """Computes what is left until a step."""
        while self.step < step:
            self.weight.grad = gradient(self.step)
            self.optimizer.step()
            self.step += 1


def gradient(step: int) -> torch.Tensor:
    return torch.randn(
        ROWS, COLUMNS, dtype=torch.float64, generator=torch.Generator().manual_seed(step)
    )


def digest(generator: torch.Generator) -> str:
    """What a generator draws next, as `rng_state` tells it."""
    return hashlib.sha256(generator.get_state().numpy().tobytes()).hexdigest()


class Training:
    """One rank's part of it."""

    def __init__(self, folder: Path | None, records: Path, **options: Any) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        os.environ["ELASTIC_PYTORCH_NODE"] = f"node-{self.rank}"
        self._mesh = init_device_mesh("cpu", (self.world,))
        size = -(-ROWS // self.world)
        self._rows = slice(min(self.rank * size, ROWS), min((self.rank + 1) * size, ROWS))
        self._model = nn.Module()
        self._model.weight = nn.Parameter(
            self._sharded(torch.ones(ROWS, COLUMNS, dtype=torch.float64))
        )
        self._optimizer = AdamW(self._model.parameters(), lr=0.01, foreach=False)
        self._undisturbed = Undisturbed()
        self._records, self._file = Records(records), records / "undisturbed"
        self._sealed = NONE
        torch.manual_seed(self.rank)
        self.state = ShardedState(
            folder,
            ShardedState.Options(**options),
            model=self._model,
            optimizer=self._optimizer,
            seen=0,
        )

    def restore(self) -> StateVersion:
        """Returns the found version; all of it must be as that step has left it."""
        self._records.add("begun", NONE)
        sealed = self._records.sealed()
        self.state.restore()
        self._undisturbed.load(self._file, self.state.step)
        peers, from_disk = self.state._peers, self.state._saved != NONE
        found = self.state._saved
        if not from_disk and peers is not None and peers._chosen is not None:
            found = peers._chosen.version
        all_new = peers is None or peers.newest == NONE
        assert all_new or found >= sealed, f"{found}, although {sealed} has been copied"
        self._check()
        if self.rank == 0:
            self._undisturbed.save(self._file)
        if found != NONE:
            self._check_generator(found, from_disk=from_disk)
        self._draw_record(self.state.step)
        return found

    def steps(self, until: int, seconds: float = 0.0) -> None:
        while self.state.step < until:
            own = gradient(self.state.step)
            self._model.weight.grad = self._sharded(own)
            self._optimizer.step()
            torch.rand(self.rank + 1)
            time.sleep(seconds)
            dist.all_reduce(torch.ones(1))
            self.state.seen += 1
            self._draw_record(self.state.step + 1)
            self.state.commit()
            self._check()
            if (sealed := self.sealed()) != self._sealed:
                self._sealed = sealed
                self._records.add("sealed", sealed)

    def sealed(self) -> StateVersion:
        """The newest version of which all ranks know that its copies are whole."""
        peers = self.state._peers
        if peers is None or peers.copying or peers.snapshot.kept is None:
            return self._sealed
        return peers.snapshot.kept

    def _sharded(self, whole: torch.Tensor) -> DTensor:
        own = whole[self._rows].clone()
        return DTensor.from_local(
            own, self._mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=(COLUMNS, 1)
        )

    def _check(self) -> None:
        whole = self._undisturbed
        whole.advance(self.state.step)
        pairs = [(self._model.weight, whole.weight)]
        if whole.step:
            own, wanted = (
                self._optimizer.state[self._model.weight],
                whole.optimizer.state[whole.weight],
            )
            pairs += [(own[name], wanted[name]) for name in ("exp_avg", "exp_avg_sq")]
            assert own["step"] == wanted["step"]
        for number, (own, wanted) in enumerate(pairs):
            assert torch.equal(own.detach().to_local(), wanted.detach()[self._rows]), (
                f"step {whole.step}: tensor {number}"
            )
        assert self.state.seen == whole.step

    def _draw_record(self, step: int) -> None:
        number = self.state._peers._number if self.state._peers is not None else 0
        version = StateVersion(self.state._version.generation, step)
        self._records.add("drawn", version, f"{number} {digest(torch.default_generator)}")

    def _check_generator(self, found: StateVersion, *, from_disk: bool) -> None:
        """The same rank of as large a group goes on; others have a state that follows."""
        peers = self.state._peers
        group = (
            ""
            if from_disk or peers is None or peers._chosen is None
            else f"{peers._chosen.parts[0].group} "
        )
        drawn = {
            rank: (value.split()[1], world)
            for version, rank, world, value in self._records.all("drawn")
            if version == found and value.startswith(group)
        }
        if 0 not in drawn or (drawn[0][1] == self.world and self.rank not in drawn):
            return  # a kill in restore(), behind its commit, came before the record
        value, world = drawn[0]
        if world != self.world or (from_disk and self.rank):
            wanted = digest(
                torch.Generator().manual_seed(mixed(value, found.step, self.rank, self.world))
            )
        else:
            wanted, _ = drawn[self.rank]
        assert digest(torch.default_generator) == wanted, (
            f"the generator of rank {self.rank} at {found}"
        )
