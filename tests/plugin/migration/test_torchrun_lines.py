"""No option of the operator stays in a written line; torch and a shell are the judges."""

import argparse
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from elastic_pytorch_client.migration.launch import Launch, read_launch
from elastic_pytorch_client.migration.remarks import CannotMigrate
from elastic_pytorch_client.migration.torchrun_options import (
    DECIDED,
    DECIDED_FLAGS,
    FLAGS,
    MOVED,
    WITH_VALUE,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.run import get_args_parser

from tests.hypothesis_examples import examples

pytestmark = pytest.mark.torch

# What follows the script is the script's.
SCRIPT = ("train.py", "--nnodes=9", "--rdzv_backend", "mine", "-m")
VARIABLES = {"GPUS": "4", "A": "one", "B": "29500", "NODE_RANK": "1"}
STUB = """#!/bin/sh
for word in "$0" "$@"; do printf '%s\\037' "$word"; done >> {file}
echo >> {file}
"""
STARTS = (
    ["torchrun"],
    ["/opt/bin/torchrun"],
    ["python", "-m", "torch.distributed.run"],
    ["python3", "-u", "-m", "torch.distributed.run"],
)
STARTS_OF_SHELLS = (
    *(" ".join(start) for start in STARTS if "/" not in start[0]),
    "exec torchrun",
    "X=1 Y='a b' torchrun",
    "python -O -X dev -m torch.distributed.run",
    "$(which torchrun)",
    "`which torchrun`",
    "python $(which torchrun)",
)
NUMBERS = (
    "4",
    "$GPUS",
    "${GPUS}",
    '"$GPUS"',
    "$((GPUS * 2))",
    "$(echo $((1 + 1)))",
    "'4'",
    "${GPUS:-8}",
)
TEXTS = (
    "one",
    "$A",
    '"${A}:$B"',
    "$A:$B",
    "$(echo a)",
    '"$(echo "a b" | cut -c1)"',
    "`echo a`",
    "'a b'",
    "a\\ b",
)
GAPS = (" ", "  ", " \\\n  ", "\\\n ")

parser = get_args_parser()
PLAIN = parser.parse_args(["train.py"])


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What torchrun makes of the words that follow it."""
    return parser.parse_args(list(words))


def numeric(name: str) -> bool:
    return name in (
        "nproc-per-node",
        "max-restarts",
        "node-rank",
        "master-port",
        "monitor-interval",
        "shutdown-timeout",
    )


@st.composite
def options(draw: st.DrawFn, *, shell: bool) -> list[list[str]]:
    names = draw(
        st.lists(
            st.sampled_from(
                [*sorted(DECIDED | MOVED), "standalone", "role", "log-dir", "tee", "t", "r"]
            ),
            max_size=9,
        )
    )
    found = []
    for name in names:
        dashes = "-" if len(name) == 1 else "--"
        spelled = dashes + (name.replace("-", "_") if draw(st.booleans()) else name)
        quote = draw(st.sampled_from(["", "", "", "'", '"'])) if shell else ""
        if name in DECIDED_FLAGS:
            found.append([f"{quote}{spelled}{quote}"])
            continue
        if name in ("tee", "t", "r"):
            value = "3"
        elif name == "max-restarts":
            value = "5"
        elif numeric(name):
            value = (
                draw(st.sampled_from(NUMBERS if shell else ("4", "$(GPUS)")))
                if name == "nproc-per-node"
                else "1"
            )
        else:
            value = draw(st.sampled_from(TEXTS if shell else ("1", "$(A):$(B)", "$A", "a b")))
        glued = draw(st.booleans()) and len(name) > 1
        found.append([f"{spelled}={value}"] if glued else [f"{quote}{spelled}{quote}", value])
    return found


@st.composite
def programs(draw: st.DrawFn) -> list[str]:
    """What follows the options."""
    flags = draw(st.sampled_from(([], ["-m"], ["--no-python"], ["--no_python"], ["--"])))
    return [*flags, *SCRIPT[: draw(st.integers(1, len(SCRIPT)))]]


def judge(before: argparse.Namespace, after: argparse.Namespace, taken: dict[str, str]) -> None:
    for name in DECIDED | DECIDED_FLAGS:
        field = name.replace("-", "_")
        assert getattr(after, field) == getattr(PLAIN, field), name
    for name in MOVED:
        field = name.replace("-", "_")
        if getattr(after, field) == getattr(PLAIN, field):
            assert taken.get(name, str(getattr(PLAIN, field))) == str(getattr(before, field)), name
        else:
            assert getattr(after, field) == getattr(before, field), name
    for field, value in vars(before).items():
        if field.replace("_", "-") not in DECIDED | DECIDED_FLAGS | MOVED:
            assert getattr(after, field) == value, field


@given(options(shell=False), programs(), st.sampled_from(STARTS))
def test_words_of_a_container(
    given_options: list[list[str]], program: list[str], start: list[str]
) -> None:
    words = [word for option in given_options for word in option]
    launch = read_launch("container", [*start, *words, *program], [])
    assert launch.command == ()
    judge(parse([*words, *program]), parse(launch.args), launch.options)


def calls_of(text: str, folder: Path) -> list[list[str]]:
    """The command lines of the Python programs that a shell starts."""
    file = folder / "calls"
    file.write_text("")
    for name in ("torchrun", "python", "python3"):
        (folder / name).write_text(STUB.format(file=file))
        (folder / name).chmod(0o755)
    environment = {**VARIABLES, "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(
        ["bash", "-c", text], env=environment, check=True, timeout=60, capture_output=True
    )
    return [line.split("\x1f")[:-1] for line in file.read_text().split("\n")[:-1]]


def words_of(call: list[str]) -> list[str]:
    """The words that torchrun gets."""
    if "torch.distributed.run" in call:
        return call[call.index("torch.distributed.run") + 1 :]
    return call[2:] if Path(call[0]).name != "torchrun" else call[1:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bin")


@pytest.mark.process
@settings(max_examples=examples(100))  # it starts two shells each time
@given(st.data())
def test_lines_of_a_shell(folder: Path, data: st.DataObject) -> None:
    parts = [word for option in data.draw(options(shell=True)) for word in option]
    start = data.draw(st.sampled_from(STARTS_OF_SHELLS))
    line = start + "".join(
        data.draw(st.sampled_from(GAPS)) + part for part in [*parts, *data.draw(programs())]
    )
    text = data.draw(
        st.sampled_from(
            (
                f"{line}",
                f"# it doesn't say --nnodes=2\ncd . && {line} 2>&1 | cat",
                f"set -e; {line}\necho done --nnodes=7",
                f'bash -c "{line}"' if set(line).isdisjoint("'\"\\$`") else line,
            )
        )
    )
    launch = read_launch("container", ["bash", "-c", text], [])
    [before] = calls_of(text, folder)
    if launch.command:
        [after] = [words_of(call) for call in calls_of(launch.command[2], folder)]
    else:
        after = list(launch.args)
    judge(parse(words_of(before)), parse(after), launch.options)


@pytest.mark.process
def test_a_call_in_a_call(folder: Path) -> None:
    inner = "$(bash -c 'torchrun --nnodes 3 x' | wc -l)"
    text = f"torchrun --nnodes 2 --rdzv_id={inner} --role x train.py 'a b'"
    launch = read_launch("container", ["bash", "-c", text], [])
    before = words_of(calls_of(text, folder)[-1])
    judge(parse(before), parse(launch.args), launch.options)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('export L="torchrun --nnodes 2"\n$L train.py', 'L="torchrun'),
        ("L=(torchrun --nnodes 2)\n${L[@]} train.py", "L=(torchrun"),
        ('A="--nnodes 2"\ntorchrun $A train.py', "$A"),
        ("A='--nnodes 2'; torchrun ${A} train.py", "${A}"),
        ('A="$B --nnodes 2"; torchrun "$A" train.py', "$A"),
        ("if a; then A=--standalone; fi; torchrun $A train.py", "$A"),
        ("A=(\n  # nodes\n  --nnodes 2\n)\ntorchrun ${A[@]} train.py", "${A[@]}"),
        ("A=x\nA+=' --nnodes 2'\ntorchrun $A train.py", "$A"),
        ("A=$(args); torchrun $A train.py", "$A"),
        ('exec torchrun --node_rank=$R "$0" "$@"', "$0"),
        ('torchrun "$@"', "$@"),
        ("date; bash -c 'torchrun --role '\\''a b'\\'' train.py'", "'torchrun --role '"),
    ],
)
def test_options_that_are_not_written_after_torchrun_are_refused(text: str, named: str) -> None:
    with pytest.raises(CannotMigrate, match=re.escape(f"write {named} out")):
        read_launch("container", ["bash", "-c", text], [])


@pytest.mark.parametrize("value", ["train.py", "'train.py --lr 1'", "$D/train.py", "(t.py --x)"])
def test_a_variable_with_the_script_stays(value: str) -> None:
    text = f"S={value}\ntorchrun --nnodes 2 --standalone $S"
    launch = read_launch("container", ["bash", "-c", text], [])
    assert launch.command == ("bash", "-c", f"S={value}\ntorchrun $S")
    assert "may hold more options" not in " ".join(launch.remarks)


@pytest.mark.parametrize(
    "command",
    [
        "python /usr/local/bin/torchrun --nnodes=2 --rdzv-backend=c10d train.py",
        "python -O -m torch.distributed.run --nnodes=2 train.py",
        "python /x/site-packages/torch/distributed/run.py --nnodes=2 train.py",
        "python -mtorch.distributed.run --nnodes=2 train.py",
        "torchrun --nn=2 --stand train.py",
    ],
)
def test_other_spellings(command: str) -> None:
    launch: Launch = read_launch("container", shlex.split(command), [])
    written = " ".join([*launch.command, *launch.args])
    assert "nnodes" in launch.options
    assert not [
        name
        for name in ("nn", "stand", "rdzv", "c10d", "node_rank")
        if f"-{name}" in written or name == written
    ], written
    assert "train.py" in written


def test_what_a_shell_gets_from_elsewhere_is_told() -> None:
    launch = read_launch("container", ["bash", "-c", "torchrun $TORCHRUN_ARGS train.py"], [])
    assert "$TORCHRUN_ARGS" in " ".join(launch.remarks)
    launch = read_launch("container", ["bash", "-c", "export PET_NNODES=2; torchrun train.py"], [])
    assert "PET_NNODES" in " ".join(launch.remarks)
    launch = read_launch("container", ["torchrun", "$(ARGS)", "train.py"], [])
    assert "$(ARGS)" in " ".join(launch.remarks)


def test_all_options_of_this_torch_are_known() -> None:
    known = {
        spelling.lstrip("-").replace("_", "-")
        for action in parser._actions
        for spelling in action.option_strings
    }
    assert known - {"h", "help", "print-completion"} <= WITH_VALUE | FLAGS
    for action in parser._actions:
        for spelling in action.option_strings:
            name = spelling.lstrip("-").replace("_", "-")
            assert name not in (FLAGS if action.nargs is None else WITH_VALUE), name
