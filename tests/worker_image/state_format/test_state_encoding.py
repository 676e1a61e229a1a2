"""What goes into a state comes out of it, and what cannot is named."""

import collections
import json
import math
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from elastic_pytorch.state_format.payload import payload_chunks, read_payload
from elastic_pytorch.state_format.state_encoding import (
    DTYPES,
    UnsupportedValue,
    flatten,
    tensor_kinds,
    unflatten,
)
from hypothesis import example, given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch


class Point(NamedTuple):
    x: int
    y: int


def through(tree: Any) -> Any:
    skeleton, tensors = flatten(tree)
    assert tensor_kinds(skeleton) == [(tensor.dtype, tensor.shape) for tensor in tensors]
    return unflatten(skeleton, [tensor.clone() for tensor in tensors])


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        equal = a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
        return equal and a.dtype == b.dtype
    if isinstance(a, (numpy.ndarray, numpy.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a, b, strict=True))
    if isinstance(a, float):
        alike = a == b and math.copysign(1, a) == math.copysign(1, b)
        return alike or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


OF_TORCH = (torch.bfloat16, torch.device("cuda", 3), torch.Size([2, 3]))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.characters(categories=["Cs"]),  # what a file's name that is no text becomes
    st.binary(),
    st.binary().map(bytearray),
    st.complex_numbers(allow_nan=False),
    st.sets(st.integers()),
    st.frozensets(st.tuples(st.text(), st.booleans())),
    st.sampled_from([torch.float32, torch.device("cpu"), *OF_TORCH]),
    st.lists(st.integers(0, 3), max_size=3).map(
        lambda shape: torch.arange(math.prod(shape)).reshape(shape)
    ),
    st.floats(width=32).map(torch.tensor),
    st.integers(-(2**31), 2**31 - 1).map(numpy.int32),
    st.lists(st.floats(width=32)).map(lambda values: numpy.array(values, dtype="float32")),
)
KEYS = st.one_of(
    st.text(), st.integers(), st.booleans(), st.none(), st.tuples(st.integers(), st.text())
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(lambda items: collections.deque(items, 9)),
        st.dictionaries(st.text(), inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4).map(collections.OrderedDict),
        st.dictionaries(st.integers(), inner, max_size=4).map(
            lambda items: collections.defaultdict(list, items)
        ),
        st.dictionaries(KEYS, st.integers(), max_size=4).map(collections.Counter),
    ),
    max_leaves=12,
)


@given(TREES)
@example([1j, b"x", bytearray(b"x"), {1}, frozenset({1}), numpy.int32(1), *OF_TORCH])
def test_a_tree_comes_back_as_it_was(tree: Any) -> None:
    assert same(through(tree), tree)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", DTYPES)
def test_all_types_of_tensors(name: str) -> None:
    tensor = torch.zeros(3, 2, dtype=DTYPES[name])
    back = through({"t": tensor})["t"]
    assert back.dtype is DTYPES[name]
    assert back.shape == (3, 2)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0)[::3],
        torch.arange(3).expand(2, 3),
        torch.tensor(7),
        torch.empty(0),
        torch.empty(2, 0, 3, dtype=torch.int64),
        torch.tensor([1 + 2j]).conj(),
        torch.nn.Parameter(torch.ones(2)),
    ],
)
def test_tensors_of_all_shapes(tensor: torch.Tensor) -> None:
    back = through([tensor])[0]
    assert type(back) is torch.Tensor
    assert not back.requires_grad
    assert back.tolist() == tensor.tolist()


def test_numpy_of_all_orders() -> None:
    tree = {
        "big-endian": numpy.arange(3, dtype=">i4"),
        "reversed": numpy.arange(6).reshape(2, 3)[:, ::-1],
        "scalar": numpy.float64(0.1),
        "truth": numpy.bool_(True),
        "none": numpy.zeros((0, 2)),
        "0-dim": numpy.array(3.0),
        "read-only": numpy.broadcast_to(numpy.arange(3), (2, 3)),
    }
    back = through(tree)
    for key, value in tree.items():
        assert type(back[key]) is type(value)
        assert back[key].tolist() == value.tolist()
    assert back["0-dim"].shape == ()


def test_a_named_tuple_becomes_a_tuple() -> None:
    assert through(Point(1, 2)) == (1, 2)


def test_what_modules_keep_of_their_versions() -> None:
    state = torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict()
    assert through(state)._metadata == state._metadata


OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "LBFGS")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_states_of_optimizers_come_back(kind: str) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(torch.ones(2, 3)).square().sum()
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(loss)
    state = optimizer.state_dict()
    assert same(through(state), state)


def test_the_states_of_schedulers_come_back() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    rates = torch.optim.lr_scheduler
    constant, linear = rates.ConstantLR(optimizer), rates.LinearLR(optimizer)
    for scheduler in (
        rates.MultiStepLR(optimizer, [2, 3, 3]),
        rates.OneCycleLR(optimizer, 0.1, total_steps=20),
        rates.CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False),
        rates.LambdaLR(optimizer, lambda epoch: 0.95**epoch),
        rates.SequentialLR(optimizer, [constant, linear], [2]),
    ):
        optimizer.step()
        scheduler.step()
        state = scheduler.state_dict()
        assert same(through(state), state), type(scheduler)


class Callback:
    def __call__(self) -> None: ...


LOOP: list[Any] = []
LOOP.append(LOOP)


TENSOR = "w: a Tensor of torch.float32, torch."


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"scheduler": {"lambdas": [print]}}, "scheduler.lambdas[0]: a function cannot be saved"),
        ({"state": {3: {"x": object()}}}, "state[3].x: a value of type object cannot be saved"),
        ({"a": Callback()}, f"a: a value of type {__name__}.Callback cannot be saved"),
        (print, "the state: a function cannot be saved"),
        ({"w": torch.ones(2).to_sparse()}, f"{TENSOR}sparse_coo, on cpu cannot be saved"),
        ({"w": torch.ones(2, device="meta")}, f"{TENSOR}strided, on meta cannot be saved"),
        ({"w": torch.nn.UninitializedParameter()}, "w: a UninitializedParameter cannot be saved"),
        ({"n": numpy.array(["text"])}, "n: a numpy.ndarray of <U4 cannot be saved"),
        ({"n": numpy.array([object()])}, "n: a numpy.ndarray of object cannot be saved"),
        ({"d": collections.defaultdict(lambda: 1)}, "d: a value of type collections.defaultdict"),
        ({object(): 1}, "(the key <object object"),
        ({"n": 10**5000}, "n: a number of thousands of digits cannot be saved"),
        (LOOP, "a list that contains itself"),
    ],
)
def test_what_cannot_be_saved_is_named(tree: Any, message: str) -> None:
    with pytest.raises(UnsupportedValue) as caught:
        flatten(tree)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "skeleton", [b"", b"\xff", b"{}", b"[]", b"[" * 10**5, b'{"version":2,"tree":1}', b'{"tree":1}']
)
def test_garbage_is_no_skeleton(skeleton: bytes) -> None:
    with pytest.raises(ValueError, match="skeleton"):
        unflatten(skeleton, [])
    with pytest.raises(ValueError, match="skeleton"):
        tensor_kinds(skeleton)


NODES = st.recursive(
    st.one_of(st.none(), st.integers(-3, 3), st.sampled_from("TAS{OCDQZ(sbctv")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=1), inner, max_size=3)
    ),
)


@given(NODES)
def test_wrong_skeletons_are_refused_or_read(node: Any) -> None:
    skeleton = json.dumps({"version": 1, "tree": node}).encode()
    for reading in (lambda: unflatten(skeleton, []), lambda: tensor_kinds(skeleton)):
        try:
            reading()
        except ValueError:
            continue


def test_tensors_must_be_those_of_the_skeleton() -> None:
    skeleton, tensors = flatten({"a": torch.ones(2), "b": torch.ones(3)})
    first, second = tensors
    for wrong in ([], [first], [first, second, first], [second, first], [first, second.double()]):
        with pytest.raises(ValueError, match="tensor"):
            unflatten(skeleton, wrong)


def test_a_payload_keeps_the_copies_that_it_is_made_of() -> None:
    """A tensor that is on a GPU or not contiguous is copied; only the payload has it."""
    numbers = torch.arange(1_000_000).view(1000, 1000)
    chunks = payload_chunks({"turned": numbers.t()})
    # In the memory of the copy, if that were free.
    others = [torch.full((1000, 1000), 7) for _ in range(4)]
    payload = b"".join(chunks)

    def read_into(offset: int, buffer: memoryview) -> None:
        buffer[:] = payload[offset : offset + len(buffer)]

    assert torch.equal(read_payload(read_into, len(payload))["turned"], numbers.t())
    assert len(others) == 4
