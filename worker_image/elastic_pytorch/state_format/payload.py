"""A state as bytes, in memory and in files: prefix, tensors at multiples of 64, skeleton.

The tensors come before the skeleton, so that their offsets stay the same from step to step even if
the skeleton grows by a digit.
"""

import ctypes
import mmap
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from elastic_pytorch.state_format.state_encoding import flatten, tensor_kinds, unflatten

ALIGNMENT = 64
PREFIX = struct.Struct("<QQ48x")  # bytes of the tensors, bytes of the skeleton

TensorKind = tuple[torch.dtype, torch.Size]


def tensor_offsets(kinds: Sequence[TensorKind]) -> tuple[list[int], int]:
    """Returns where in the payload each tensor begins, and where the last one ends."""
    offsets = []
    end = PREFIX.size
    for dtype, shape in kinds:
        offsets.append(end)
        end += -(-dtype.itemsize * shape.numel() // ALIGNMENT) * ALIGNMENT
    return offsets, end


def read_payload(read_into: Callable[[int, memoryview], None], length: int) -> Any:
    """Reads a state into tensors of its own; `read_into` fills a buffer from an offset on.

    All readers raise a ValueError for bytes that are no payload.
    """

    def tensor_at(offset: int, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        if tensor.numel():
            read_into(offset, memory_of(tensor))
        return tensor

    return _take_apart(read_into, length, tensor_at)


def decoded(payload: bytes) -> Any:
    return read_payload(partial(_copy_from, payload), len(payload))


def view_payload(memory: mmap.mmap) -> Any:
    """Returns the state in mapped memory, with tensors that are views of it."""
    return _take_apart(partial(_copy_from, memory), len(memory), partial(view_at, memory))


def view_at(memory: mmap.mmap, offset: int, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    if not shape.numel():
        return torch.empty(shape, dtype=dtype)
    # Each has its own storage, from whose beginning random number generators read a state.
    data = torch.frombuffer(
        memory, dtype=torch.uint8, count=dtype.itemsize * shape.numel(), offset=offset
    )
    return data.view(dtype).view(shape)


def _copy_from(memory: bytes | mmap.mmap, offset: int, buffer: memoryview) -> None:
    buffer[:] = memory[offset : offset + len(buffer)]


def _take_apart(
    read_into: Callable[[int, memoryview], None],
    length: int,
    tensor_at: Callable[[int, torch.dtype, torch.Size], torch.Tensor],
) -> Any:
    prefix = bytearray(PREFIX.size)
    if length < PREFIX.size:
        raise ValueError("too short")
    read_into(0, memoryview(prefix))
    data_length, skeleton_length = PREFIX.unpack(prefix)
    if PREFIX.size + data_length + skeleton_length != length:
        raise ValueError(
            f"{data_length} bytes of tensors and {skeleton_length} of skeleton in {length} bytes"
        )
    skeleton = bytearray(skeleton_length)
    read_into(PREFIX.size + data_length, memoryview(skeleton))
    kinds = tensor_kinds(bytes(skeleton))
    offsets, end = tensor_offsets(kinds)
    if end != PREFIX.size + data_length:
        raise ValueError(f"tensors of {end - PREFIX.size} bytes in {data_length} bytes")
    tensors = [tensor_at(offset, *kind) for kind, offset in zip(kinds, offsets, strict=True)]
    return unflatten(bytes(skeleton), tensors)


def memory_of(tensor: torch.Tensor) -> memoryview:
    """Returns a contiguous CPU tensor's bytes, which are valid until the tensor is resized."""
    memory = (ctypes.c_char * (tensor.numel() * tensor.itemsize)).from_address(tensor.data_ptr())
    memory.tensor = tensor  # type: ignore[attr-defined] # keeps its memory alive
    return memoryview(memory).cast("B")


def encoded(tree: Any) -> bytes:
    return b"".join(payload_chunks(tree))


def payload_chunks(tree: Any) -> list[bytes | memoryview]:
    """Returns a state as bytes for `read_payload`, valid while its tensors do not change."""
    skeleton, tensors = flatten(tree)
    on_cpu = [tensor.detach().cpu().contiguous() for tensor in tensors]
    _, end = tensor_offsets(tensor_kinds(skeleton))
    chunks: list[bytes | memoryview] = [PREFIX.pack(end - PREFIX.size, len(skeleton))]
    for tensor in on_cpu:
        if tensor.numel():
            chunks += [memory_of(tensor), bytes(-tensor.numel() * tensor.itemsize % ALIGNMENT)]
    return [*chunks, skeleton]
