"""Orders of a script's own: a function of the epoch says which samples come, in which order, or in which batches."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from elastic_pytorch.state_format.payload import memory_of

Indices = Iterable[int] | torch.Tensor
OrderOf = Callable[[int], Indices]
BatchesOf = Callable[[int], Iterable[Indices]]

EPOCH_ALONE = (
    "what {name}= returns must depend on the epoch alone: not on the rank, nor on a generator that nothing seeds with the epoch, as "
    "torch.Generator().manual_seed(seed + epoch) does"
)


@dataclass(frozen=True, slots=True)
class Described:
    """What is kept of an epoch's order.

    Attributes:
        epoch: of which it is.
        samples: in the epoch; each counts as often as it comes.
        batches: None: their size is not of the order.
        checksum: of the indices and the ends of the batches.
    """

    epoch: int
    samples: int
    batches: int | None
    checksum: str

    def __str__(self) -> str:
        batches = "" if self.batches is None else f" in {self.batches} batches"
        return f"{self.samples} samples{batches}, with checksum {self.checksum}"


class Made(NamedTuple):
    """The order of an epoch.

    Attributes:
        epoch: of which it is.
        indices: of the samples, as int64 on the CPU.
        ends: where each batch ends in them; None: all batches have one size.
    """

    epoch: int
    indices: torch.Tensor
    ends: tuple[int, ...] | None

    def described(self) -> Described:
        """Returns its description. Takes as long as a hash of the indices."""
        digest = hashlib.blake2b(memory_of(self.indices), digest_size=8)
        if self.ends is not None:
            digest.update(memory_of(torch.tensor(self.ends)))
        return Described(self.epoch, len(self.indices), None if self.ends is None else len(self.ends), digest.hexdigest())


class OwnOrder:
    """The orders of all epochs, from a function of the script. The newest one that was asked for is kept.

    Args:
        length: the number of samples that there are.
        order: returns the indices of an epoch, in their order.
        batches: instead: returns the batches of an epoch, each as indices.
        least: the number of samples that an epoch must have.

    Raises:
        TypeError: it is not a function.
    """

    def __init__(self, length: int, *, order: OrderOf | None = None, batches: BatchesOf | None = None, least: int = 1) -> None:
        self._length, self._least = length, least
        self.name = "order" if batches is None else "batches"
        self._function: Any = order if batches is None else batches
        if not callable(self._function):
            raise TypeError(
                f"{self.name} must be a function of the epoch, as in {self.name}=lambda epoch: ..., not a "
                f"{type(self._function).__name__}"
            )
        self._newest: Made | None = None
        self._described: Described | None = None  # of the newest
        self._begun: Described | None = None  # of the epoch that the newest step was of

    def of(self, epoch: int) -> torch.Tensor:
        """Returns the indices of an epoch's samples, in their order.

        Raises:
            TypeError: the function returns something else.
            ValueError: it returns no samples, an empty batch, or an index that the dataset does not have.
        """
        return self._made(epoch).indices

    def samples(self, epoch: int) -> int:
        """Returns the number of samples in an epoch."""
        return len(self.of(epoch))

    def ends(self, epoch: int) -> tuple[int, ...] | None:
        """Returns where each batch of an epoch ends; None: they have one size."""
        return self._made(epoch).ends

    def usual_batch(self, epoch: int, size: int) -> int:
        """Returns the samples of most steps; of batches with sizes of their own the mean, in whole samples.

        Args:
            epoch: for which to tell it if no step has been done. Otherwise it is that of the newest step: there may be no epoch after it.
            size: of a batch, if the order says none.
        """
        told = self._begun or self._describe(epoch)
        return min(size, told.samples) if told.batches is None else max(1, round(told.samples / told.batches))

    def end_step(self, epoch: int) -> None:
        """Notes that a step of an epoch is done: from now on the saved state has the description of the epoch's order."""
        if self._begun is None or self._begun.epoch != epoch:
            self._begun = self._describe(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the description of the epoch in which the newest step was."""
        return {"order": {"given": self.name, **(asdict(self._begun) if self._begun else {})}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Checks that the order is that of a saved state.

        Raises:
            ValueError: it is another one; the message says in what they differ.
        """
        saved = state.get("order") or {"given": "the seed"}
        if saved["given"] != self.name:
            raise ValueError(
                f"the order was that of {saved['given']}, and is that of {self.name}= now: give what it was, or begin in another folder"
            )
        was = Described(**{name: value for name, value in saved.items() if name != "given"}) if len(saved) > 1 else None
        if was is not None and was != self._begun and (now := self._describe(was.epoch)) != was:
            raise ValueError(
                f"the order of epoch {was.epoch} was of {was}, and {self.name}= now gives {now}. Give the function and the dataset as they "
                f"were, or begin in another folder. If they are, {EPOCH_ALONE.format(name=self.name)}"
            )
        self._begun = was

    def compare(self, epoch: int) -> None:
        """Makes sure that all ranks have the same order for an epoch. Collective, over the default group.

        Raises:
            RuntimeError: they do not; on all ranks alike.
        """
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        told: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(told, self._describe(epoch))
        self.refuse_unlike(told)

    def refuse_unlike(self, told: Sequence[Described]) -> None:
        """Makes sure that what the ranks have told is the same.

        Raises:
            RuntimeError: it is not.
        """
        other = next((rank for rank, each in enumerate(told) if each != told[0]), None)
        if other is not None:
            first, second = told[0], told[other]
            epochs = f"epoch {first.epoch}" if first.epoch == second.epoch else f"epochs {first.epoch} and {second.epoch}"
            raise RuntimeError(
                f"ranks 0 and {other} have different orders for {epochs}: {first}, and {second}. Samples would be lost or come twice: "
                f"{EPOCH_ALONE.format(name=self.name)}"
            )

    def _describe(self, epoch: int) -> Described:
        made = self._made(epoch)
        if self._described is None or self._described.epoch != epoch:
            self._described = made.described()
        return self._described

    def _made(self, epoch: int) -> Made:
        if self._newest is None or self._newest.epoch != epoch:
            self._newest, self._described = self._make(epoch), None
        return self._newest

    def _make(self, epoch: int) -> Made:
        call, ends = f"{self.name}({epoch})", None
        given = self._function(epoch)
        if self.name == "batches":
            parts = [_indices(each, f"batch {number} of {call}") for number, each in enumerate(_iterable(given, call))]
            empty = next((number for number, each in enumerate(parts) if not len(each)), None)
            if empty is not None:
                raise ValueError(f"batch {empty} of {call} is empty: each batch is a step, and needs a sample")
            ends = tuple(accumulate(map(len, parts)))
            indices = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
        else:
            indices = _indices(given, call)
        if not len(indices):
            raise ValueError(f"{call} has no samples: an epoch has one at least. The number of epochs says when training ends")
        if len(indices) < self._least:
            raise ValueError(
                f"{call}: {len(indices)} samples make no batch of {self._least}, and drop_last leaves out what is shorter"
            )
        wrong = ((indices < 0) | (indices >= self._length)).nonzero()
        if len(wrong):
            place = int(wrong[0])
            raise ValueError(
                f"{call} has the index {int(indices[place])} in place {place}, and the dataset has {self._length} samples: 0 to "
                f"{self._length - 1}"
            )
        return Made(epoch, indices, ends)


def _iterable(given: Any, what: str) -> Iterator[Any]:
    try:
        each: Iterator[Any] = iter(given)
    except TypeError:
        raise TypeError(f"{what} is a {type(given).__name__}, and not a list of batches, each a list of indices") from None
    return each


def _indices(given: Any, what: str) -> torch.Tensor:
    """Returns indices as a tensor with memory of its own: the script may use its own again."""
    try:
        found = given.detach() if isinstance(given, torch.Tensor) else torch.tensor(_sequence(given))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what} is no list of indices, but a {type(given).__name__}: {error}{_hint(what)}") from error
    if found.numel() == 0 and found.dim() == 1:
        return torch.empty(0, dtype=torch.int64)
    if found.dim() != 1 or found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise TypeError(
            f"{what} is of {found.dtype} and shape {list(found.shape)}, and not a flat list of indices, which are whole numbers"
            f"{_hint(what)}"
        )
    return found.to("cpu", torch.int64, copy=True).contiguous()


def _sequence(given: Any) -> Any:
    return given if hasattr(given, "__array__") else list(given)


def _hint(what: str) -> str:
    return "" if what.startswith("batch") else ". Whole batches are given by batches="
