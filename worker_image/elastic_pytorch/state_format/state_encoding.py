"""A state as a JSON skeleton and a list of tensors, without pickle.

In the skeleton, JSON's own values stand for themselves, and an object is a dict with text keys. An
array is anything else: first a tag for its type, then its parts. The list has the tensors in the
skeleton's order.
"""

import base64
import collections
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

VERSION = 1

_PLAIN = frozenset({type(None), bool, int, float, str})
_NUMBERS = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_REALS = ("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128")
_SMALL = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in (*_NUMBERS, *_REALS, *_SMALL) if hasattr(torch, name)
}
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_FACTORIES: dict[str, Any] = {
    kind.__name__: kind for kind in (int, float, str, bool, list, dict, set)
}

_TEXT = frozenset({str})
_SETS = {set: "s", frozenset: "f"}
_BYTES = {bytes: "b", bytearray: "B"}
_KINDS: dict[str, Any] = {tag: kind for kind, tag in (_SETS | _BYTES).items()}

_encode_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class UnsupportedValue(TypeError):
    """A value that cannot be saved; the message has its path in the state."""


def flatten(tree: Any) -> tuple[bytes, list[torch.Tensor]]:
    """Splits a state into its skeleton and its tensors; named tuples become tuples.

    Tensors are taken by reference, on any device. What is not plain data is an `UnsupportedValue`.
    """
    tensors: list[torch.Tensor] = []
    try:
        text = _encode_json({"version": VERSION, "tree": _encode(tree, tensors)})
    except (UnsupportedValue, ValueError, RecursionError):
        path, value = _find_unsupported(tree)
        raise UnsupportedValue(f"{path}: {_complaint(value)}") from None
    return text.encode(), tensors


def unflatten(skeleton: bytes, tensors: Sequence[torch.Tensor]) -> Any:
    """Raises a ValueError if this is not a skeleton, or these are not its tensors."""
    decoder = _Decoder(tensors)
    with _broken_is_value_error():
        tree = decoder.decode(_parse(skeleton))
    if decoder.next != len(tensors):
        raise ValueError(f"{len(tensors)} tensors for a skeleton of {decoder.next}")
    return tree


def tensor_kinds(skeleton: bytes) -> list[tuple[torch.dtype, torch.Size]]:
    """Returns the types and shapes of a skeleton's tensors; raises as `unflatten` does."""
    kinds: list[tuple[torch.dtype, torch.Size]] = []
    with _broken_is_value_error():
        for node in _tensor_nodes(_parse(skeleton)):
            sizes = node[2:]
            if not all(type(size) is int and size >= 0 for size in sizes):
                raise ValueError(f"not a shape: {sizes}")
            kinds.append((DTYPES[node[1]], torch.Size(sizes)))
    return kinds


@contextmanager
def _broken_is_value_error() -> Iterator[None]:
    try:
        yield
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"a broken skeleton: {type(error).__name__}: {error}") from None


def _parse(skeleton: bytes) -> Any:
    try:
        document = json.loads(skeleton)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a skeleton: {error}") from None
    if not isinstance(document, dict) or "tree" not in document:
        raise ValueError("not a skeleton")
    if document.get("version") != VERSION:
        raise ValueError(
            f"a skeleton of version {document.get('version')!r}, and this release reads version "
            f"{VERSION}"
        )
    return document["tree"]


def _encode(value: Any, tensors: list[torch.Tensor]) -> Any:
    # The most frequent types come first.
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return _encode_tensor("T", value, tensors)
    if kind is dict:
        return _encode_dict(value, tensors)
    if kind is list:
        return ["[", *[item if type(item) in _PLAIN else _encode(item, tensors) for item in value]]
    return _encode_rest(kind, value, tensors)


def _encode_dict(value: dict[Any, Any], tensors: list[torch.Tensor]) -> Any:
    if _TEXT.issuperset(map(type, value)):
        return {
            key: item if type(item) in _PLAIN else _encode(item, tensors)
            for key, item in value.items()
        }
    parts: list[Any] = ["{"]
    for key, item in value.items():
        parts.append(key if type(key) in _PLAIN else _encode(key, tensors))
        parts.append(item if type(item) in _PLAIN else _encode(item, tensors))
    return parts


def _encode_tensor(tag: str, value: torch.Tensor, tensors: list[torch.Tensor]) -> Any:
    name = _DTYPE_NAMES.get(value.dtype)
    if name is None or value.layout is not torch.strided or value.is_meta or value.is_nested:
        raise UnsupportedValue
    tensors.append(value.detach() if value.requires_grad else value)
    return [tag, name, *value.shape]


def _encode_rest(kind: type, value: Any, tensors: list[torch.Tensor]) -> Any:
    if kind is collections.OrderedDict:
        # Modules keep their versions in an attribute of their state_dict.
        metadata = getattr(value, "_metadata", None)
        return [
            "O",
            _encode_dict(value, tensors),
            None if metadata is None else _encode(metadata, tensors),
        ]
    if kind is collections.Counter:
        return ["C", _encode_dict(value, tensors)]
    if kind is collections.defaultdict:
        factory = str(getattr(value.default_factory, "__name__", ""))
        if (
            value.default_factory is not None
            and _FACTORIES.get(factory) is not value.default_factory
        ):
            raise UnsupportedValue
        return ["D", factory or None, _encode_dict(value, tensors)]
    if kind is collections.deque:
        return ["Q", value.maxlen, *[_encode(item, tensors) for item in value]]
    if kind is torch.Size:
        return ["Z", *value]
    if kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return ["(", *[_encode(item, tensors) for item in value]]
    if kind in _SETS:
        return [_SETS[kind], *[_encode(item, tensors) for item in value]]
    if kind in _BYTES:
        return [_BYTES[kind], base64.b64encode(value).decode()]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind is torch.dtype and value in _DTYPE_NAMES:
        return ["t", _DTYPE_NAMES[value]]
    if kind is torch.device:
        return ["v", str(value)]
    return _encode_numpy(kind, value, tensors)


def _encode_numpy(kind: type, value: Any, tensors: list[torch.Tensor]) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None or not (kind is numpy.ndarray or issubclass(kind, numpy.generic)):
        raise UnsupportedValue
    array = numpy.asarray(value)
    if array.dtype.name not in DTYPES or numpy.dtype(array.dtype.name) != array.dtype.newbyteorder(
        "="
    ):
        raise UnsupportedValue
    # A copy, because numpy does not count writes, and torch has no read-only tensors.
    array = numpy.array(array, array.dtype.newbyteorder("="), order="C")
    return _encode_tensor("A" if kind is numpy.ndarray else "S", torch.from_numpy(array), tensors)


def _find_unsupported(tree: Any) -> tuple[str, Any]:
    """Returns the path and the value that cannot be saved, so that saving itself needs no paths."""
    path, value = "", tree
    seen = {id(tree)}
    while True:
        for step, child in _children(value):
            try:
                _encode_json(_encode(child, []))
            except (UnsupportedValue, ValueError, RecursionError):
                path, value = path + step, child
                break
        else:
            return path.removeprefix(".") or "the state", value
        if id(value) in seen:
            return path.removeprefix("."), value
        seen.add(id(value))


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f" (the key {key!r})", key
            yield f".{key}" if isinstance(key, str) else f"[{key!r}]", item
    elif isinstance(value, (list, tuple, collections.deque)):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from (("{}", item) for item in value)


def _complaint(value: Any) -> str:
    kind = type(value)
    if kind in (dict, list, tuple, collections.OrderedDict):
        return f"a {kind.__name__} that contains itself, or is nested too deeply, cannot be saved"
    if kind is int:
        return "a number of thousands of digits cannot be saved"
    if isinstance(value, torch.Tensor):
        what = (
            f"{kind.__name__} of {value.dtype}, {value.layout}, on {value.device}"
            if kind is torch.Tensor
            else kind.__name__
        )
        return f"a {what} cannot be saved: only plain tensors can"
    if callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
        return "a function cannot be saved: save what it is made from, and make it again"
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if name.startswith("numpy."):
        return f"a {name} of {value.dtype} cannot be saved: only numbers can"
    return (
        f"a value of type {name} cannot be saved: "
        "save its parts as numbers, texts, lists, dicts and tensors"
    )


class _Decoder:
    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.next = 0
        self._tensors = tensors

    def decode(self, node: Any) -> Any:
        if type(node) in _PLAIN:
            return node
        if type(node) is dict:
            return {key: self.decode(item) for key, item in node.items()}
        tag, parts = node[0], node[1:]
        if tag == "T":
            return self._tensor(parts)
        if tag == "[":
            return [self.decode(part) for part in parts]
        if tag == "{":
            return {
                self.decode(key): self.decode(item)
                for key, item in zip(parts[::2], parts[1::2], strict=True)
            }
        return self._decode_rest(tag, parts)

    def _decode_rest(self, tag: str, parts: list[Any]) -> Any:
        if tag == "O":
            ordered = collections.OrderedDict(self.decode(parts[0]))
            if parts[1] is not None:
                ordered._metadata = self.decode(parts[1])  # type: ignore[attr-defined]
            return ordered
        if tag == "C":
            return collections.Counter(self.decode(parts[0]))
        if tag == "D":
            return collections.defaultdict(
                None if parts[0] is None else _FACTORIES[parts[0]], self.decode(parts[1])
            )
        if tag == "Q":
            return collections.deque([self.decode(part) for part in parts[1:]], parts[0])
        if tag == "Z":
            return torch.Size(parts)
        if tag == "(":
            return tuple(self.decode(part) for part in parts)
        if tag in _SETS.values():
            return _KINDS[tag](self.decode(part) for part in parts)
        if tag in _BYTES.values():
            return _KINDS[tag](base64.b64decode(parts[0], validate=True))
        if tag == "c":
            return complex(*parts)
        if tag == "t":
            return DTYPES[parts[0]]
        if tag == "v":
            return _device(parts[0])
        if tag == "A":
            return self._tensor(parts).numpy()
        if tag == "S":
            return self._tensor(parts).numpy()[()]
        raise ValueError(f"an unknown tag: {tag!r}")

    def _tensor(self, parts: list[Any]) -> torch.Tensor:
        if self.next == len(self._tensors):
            raise ValueError(f"{len(self._tensors)} tensors are too few")
        tensor = self._tensors[self.next]
        self.next += 1
        if tensor.dtype is not DTYPES[parts[0]] or list(tensor.shape) != parts[1:]:
            raise ValueError(
                f"a tensor of {tensor.dtype} {list(tensor.shape)} where {parts} is meant"
            )
        return tensor


def _device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _tensor_nodes(node: Any) -> Iterator[list[Any]]:
    if type(node) is dict:
        for item in node.values():
            yield from _tensor_nodes(item)
    elif type(node) is list:
        if node[0] in ("T", "A", "S"):
            yield node
        else:
            for part in node[1:]:
                yield from _tensor_nodes(part)
