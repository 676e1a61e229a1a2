"""The trained part of a model, such as an adapter (LoRA)."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.nn.parameter import Parameter, is_lazy

from elastic_pytorch.state.values.plain_values import Fingerprint, fingerprint
from elastic_pytorch.state.values.registered import innermost

ROW_BYTES = 4096  # of the table by which a checksum is computed
ROWS = 1 << 14  # summed up at once: 64 MB


class Trained:
    """Has a State keep a model's parameters with gradients and its persistent buffers.

    `restore()` refuses frozen weights other than those of the commit, by name and checksum. A
    parameter that has once been trained is kept, frozen or not. So is a frozen one that the script
    writes to; writes by `.data`, numpy or other libraries are seen only by the first commit of a
    group.

    The model may be sharded (FSDP2's fully_shard) before `restore()`, and a group of any size goes
    on.

    Args:
        model: the model. It may be wrapped in DistributedDataParallel or compiled, before or later.

    Attributes:
        trained_model: the model without its wrappers.

    Raises:
        TypeError: `model` is not a model.
        ValueError: none of its parameters requires gradients, or one has no values yet.
    """

    rank_0_counts = True  # the trained part of a fresh model may differ from rank to rank

    def __init__(self, model: torch.nn.Module) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"Trained({type(model).__name__}): it takes a model; "
                "register anything else as it is"
            )
        self.trained_model: torch.nn.Module = innermost(model)
        parameters = list(self.trained_model.parameters())
        if any(is_lazy(each) or each.is_meta for each in parameters):
            raise ValueError("Trained takes a model whose weights are there: load them first")
        if not any(each.requires_grad for each in parameters):
            raise ValueError(
                "no parameter of this model requires gradients: freeze it before Trained, "
                "and leave some to be trained"
            )
        self._kept: set[str] = set()  # frozen now, but changed since the script loaded them
        self._checksums: dict[str, tuple[Fingerprint, str]] = {}
        self._to_be_checked = 0  # states until all frozen weights are read again

    def state_dict(self) -> dict[str, Any]:
        self._to_be_checked -= 1
        if self._to_be_checked == 0:
            self.distrust()
        trained: dict[str, Any] = {}
        frozen: dict[str, str] = {}
        for name, value in self._values().items():
            if _is_frozen(value) and name not in self._kept and self._is_unchanged(name, value):
                frozen[name] = self._checksums[name][1]
            else:
                if isinstance(value, Parameter):
                    self._kept.add(name)
                trained[name] = value
        return {"trained": trained, "frozen": frozen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if set(state) != {"trained", "frozen"}:
            raise RuntimeError(
                "it was committed as a whole: register the model itself, or begin in another folder"
            )
        own, saved = self._values(), state["frozen"] | state["trained"]
        for name in saved:
            if name not in own:
                raise RuntimeError(f"it has {name}, and the model does not")
        self._refuse_other_weights(state["frozen"], own)
        for name in own:
            if name not in saved:
                raise RuntimeError(f"{name} is not in it")
        self.trained_model.load_state_dict(state["trained"], strict=False)
        self._kept = {name for name in state["trained"] if isinstance(own[name], Parameter)}
        self._to_be_checked = 2  # the restored state is committed, and then a step

    def template(self, saved: Collection[tuple[str, str]] | None = None) -> dict[str, Any]:
        """Returns a state to be filled; without `saved`, of all, as frozen ones may be kept."""
        return {
            "trained": {
                name: each
                for name, each in self._values().items()
                if saved is None or ("trained", name) in saved
            }
        }

    def distrust(self) -> None:
        """Has all frozen weights read again."""
        self._checksums = {name: ((-1, -1), known) for name, (_, known) in self._checksums.items()}

    def shards(self) -> dict[str, Any]:
        return {
            name: each
            for name, each in self._values().items()
            if isinstance(each, Parameter) and _is_sharded(each)
        }

    def suspects(self) -> dict[str, Any]:
        """Returns sharded parameters that are new or seem changed."""
        return {
            name: each for name, each in self.shards().items() if not self._is_known(name, each)
        }

    def take_checksums(self, found: Mapping[str, str]) -> None:
        """Takes the ranks' checksums of shards, and keeps those that have changed."""
        shards = self.shards()
        for name, checksum in found.items():
            _, known = self._checksums.get(name, (None, checksum))
            if known != checksum or not _is_frozen(shards[name]):
                self._kept.add(name)
            self._checksums[name] = _fingerprint(shards[name]), checksum

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = self.trained_model.state_dict(keep_vars=True)
        return values

    def _is_known(self, name: str, value: torch.Tensor) -> bool:
        if name not in self._checksums:
            return False
        return (
            not _is_frozen(value)
            or name in self._kept
            or self._checksums[name][0] == _fingerprint(value)
        )

    def _refuse_other_weights(self, frozen: dict[str, str], own: dict[str, Any]) -> None:
        for name, known in frozen.items():
            if not isinstance(own[name], torch.Tensor):
                raise RuntimeError(f"{name} is no tensor here")
            if (loaded := self._remember(name, own[name])) != known:
                raise RuntimeError(
                    f"the frozen {name} is {loaded} here, and was {known}. "
                    "Trained keeps no frozen weights: load the same ones in each start of the "
                    "script, on all ranks, before restore(); or register the model itself"
                )

    def _is_unchanged(self, name: str, value: torch.Tensor) -> bool:
        if _is_sharded(value):
            return name in self._checksums  # otherwise `take_checksums` has kept it
        if name not in self._checksums:
            self._remember(name, value)
            return True
        seen, known = self._checksums[name]
        return seen == fingerprint(value) or self._remember(name, value) == known

    def _remember(self, name: str, value: torch.Tensor) -> str:
        if not _is_sharded(value):  # of which this rank has a part: see `take_checksums`
            self._checksums[name] = fingerprint(value), describe(value)
        return self._checksums[name][1]


def _is_frozen(value: Any) -> bool:
    return isinstance(value, Parameter) and not value.requires_grad


def _is_sharded(value: Any) -> bool:
    """Whether it is a DTensor, whose module takes long to import."""
    return hasattr(value, "device_mesh")


def _fingerprint(shard: Any) -> Fingerprint:
    """Returns a shard's fingerprint, with torch's counts of writes to the part and the whole."""
    with torch.no_grad():  # or it would be another tensor each time
        return *fingerprint(shard.to_local()), 0 if shard.is_inference() else shard._version


@torch.no_grad()
def describe(value: torch.Tensor) -> str:
    """Returns type, shape and checksum on any device, such as "float32 [4, 2] #1f0c…".

    The checksum finds mistakes, not forgers: it has sums of integers, which are faster than a hash.
    """
    content = value.detach().contiguous().flatten().view(torch.uint8)
    if content.storage_offset() % 8:  # which torch does not view as larger integers
        content = content.clone()
    rows = content.numel() // ROW_BYTES
    digest = hashlib.sha256(bytes(content[rows * ROW_BYTES :].tolist()))
    whole = content[: rows * ROW_BYTES].view(torch.int64).view(rows, ROW_BYTES // 8)
    for table in whole.split(ROWS):  # type: ignore[no-untyped-call]
        digest.update(repr(torch.cat([table.sum(0), table.sum(1)]).tolist()).encode())
    return f"{kind_of(value)} #{digest.hexdigest()[:16]}"


def kind_of(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
