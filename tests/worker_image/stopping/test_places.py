"""Where processes stand, from stacks of torch 2.15 (scripts/hang_places.py) without their paths."""

import pytest
from elastic_pytorch.stopping.places import MAX_FRAME_CHARACTERS, StackSite, place_of

from tests.paths import ROOT

SECTIONS = (ROOT / "tests/worker_image/stopping/hang_stacks.txt").read_text().split("== ")[1:]
STACKS = {name: stack for name, _, stack in (section.partition("\n") for section in SECTIONS)}


@pytest.mark.parametrize(
    ("hangs_in", "kind", "operation", "function"),
    [
        ("all_reduce", "collective", "all_reduce", "step"),
        ("barrier", "collective", "barrier", "hang"),
        ("broadcast", "collective", "broadcast", "step"),
        ("all_gather_object", "collective", "all_gather_object", "step"),
        ("recv", "collective", "recv", "hang"),
        ("wait_tensor", "collective", "wait_tensor", "step"),
        (
            "the construction of DistributedDataParallel",
            "collective",
            "verify_param_shape_across_processes",
            "step",
        ),
        ("backward", "collective", "backward", "step"),
        ("a data loader", "dataLoader", "", "__getitem__"),
        ("a data loader with processes", "dataLoader", "", "hang"),
        ("an event", "lock", "", "hang"),
        ("a bare lock", "other", "", "hang"),
        ("a file", "file", "", "hang"),
        ("a checkpoint", "file", "", "hang"),
        ("a bare read", "other", "", "hang"),
        ("the script", "other", "", "hang"),
    ],
)
def test_places(hangs_in: str, kind: str, operation: str, function: str) -> None:
    place = place_of(STACKS[hangs_in])
    assert (place.kind, place.operation) == (kind, operation)
    file, _, where = place.frame.partition(":")
    line, _, found = where.partition(" ")
    assert (file, line.isdigit(), found) == ("train.py", True, function)


@pytest.mark.parametrize(
    ("kernel_wait", "kind"),
    [
        ("anon_pipe_read", "file"),
        ("rpc_wait_bit_killable", "file"),
        ("futex_do_wait", "other"),
        ("0", "other"),
        ("", "other"),
    ],
)
def test_kernel_says_of_a_bare_read_that_it_is_one(kernel_wait: str, kind: str) -> None:
    assert place_of(STACKS["a bare read"], kernel_wait).kind == kind


def test_collective_is_one_wherever_the_kernel_waits() -> None:
    assert place_of(STACKS["all_reduce"], "anon_pipe_read").kind == "collective"


def frames(*calls: tuple[str, str]) -> str:
    return "\n".join(f'  File "{file}", line 7 in {function}' for file, function in calls)


TORCH = "/src/pytorch/torch"
C10D, FUNCTIONAL = (
    f"{TORCH}/distributed/distributed_c10d.py",
    f"{TORCH}/distributed/_functional_collectives.py",
)


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        # The script's own backward, within the engine: not the communication.
        (
            [("/job/ops.py", "backward"), (f"{TORCH}/autograd/graph.py", "_engine_run_backward")],
            "other",
        ),
        # A sampler that asks the other ranks.
        (
            [
                (C10D, "broadcast"),
                ("/job/s.py", "__iter__"),
                (f"{TORCH}/utils/data/dataloader.py", "__next__"),
            ],
            "collective",
        ),
        # Torch imports its functional collectives with the first backward pass.
        ([(f"{TORCH}/library.py", "f"), (FUNCTIONAL, "<module>"), ("/job/s.py", "main")], "other"),
        # The wrapper around main that torchrun's documentation recommends.
        (
            [
                ("/job/s.py", "main"),
                (f"{TORCH}/distributed/elastic/multiprocessing/errors/__init__.py", "wrapper"),
            ],
            "other",
        ),
    ],
)
def test_calls_around_the_scripts_own_count_only_as_a_data_loader(
    calls: list[tuple[str, str]], kind: str
) -> None:
    assert place_of(frames(*calls)).kind == kind


def test_frame_is_short_and_printable() -> None:
    place = place_of(frames((f"/job/{'a' * 300}\x1b[31m\u202e.py", "f")))
    assert len(place.frame) == MAX_FRAME_CHARACTERS
    assert place_of('  File "/job/\x1b]0;\x07\u202ea.py", line 3 in f').frame == "]0; a.py:3 f"


def test_text_that_is_no_stack() -> None:
    assert place_of("") == place_of("nonsense\n  ...\n") == StackSite("other")
