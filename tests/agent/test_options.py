from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch.options import DECIDED, OptionsError, parse_options, worker_arguments


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PYTHON_EXEC", raising=False)
    yield


def test_defaults() -> None:
    options = parse_options(["train.py", "--lr", "0.1"])
    assert options.warm
    assert options.monitor_interval == 0.05
    assert worker_arguments(options) == ("script", "train.py", "--lr", "0.1")


@pytest.mark.parametrize("spelling", ["--nproc-per-node=2", "--nproc_per_node=2"])
def test_both_spellings(spelling: str) -> None:
    assert parse_options([spelling, "train.py"]).nproc_per_node == "2"


def test_options_of_the_script_are_its_own() -> None:
    options = parse_options(["-m", "pkg.train", "--nnodes", "4", "--rdzv-id=x"])
    assert worker_arguments(options) == ("module", "pkg.train", "--nnodes", "4", "--rdzv-id=x")


def test_variables_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NPROC_PER_NODE", "4")
    monkeypatch.setenv("PET_MONITOR_INTERVAL", "0.5")
    monkeypatch.setenv("PET_START_METHOD", "spawn")
    monkeypatch.setenv("PET_NNODES", "1:4")  # for a plain torchrun
    monkeypatch.setenv("PET_RDZV_BACKEND", "elastic-pytorch")
    options = parse_options(["train.py"])
    assert (options.nproc_per_node, options.monitor_interval, options.warm) == ("4", 0.5, False)


@pytest.mark.parametrize("name", DECIDED)
def test_what_the_operator_decides_is_refused_by_name(name: str) -> None:
    option = "--" + name.replace("_", "-")
    argv = [option] if name == "standalone" else [option, "1"]
    with pytest.raises(OptionsError, match=f"{option} .* decided by"):
        parse_options([*argv, "train.py"])


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--no-such-option", "train.py"],
        ["--no-python", "-m", "train"],
        ["--monitor-interval=0", "train.py"],
        ["--max-restarts=x", "t.py"],
    ],
)
def test_wrong_command_lines_are_refused(argv: list[str]) -> None:
    with pytest.raises(OptionsError):
        parse_options(argv)


@pytest.mark.parametrize(
    ("argv", "environ"),
    [(["--start-method=spawn", "t.py"], {}), (["--no-python", "prog"], {}), (["t.py"], {"PYTHON_EXEC": "/opt/other/python"})],
)
def test_cold_starts(argv: list[str], environ: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert not parse_options(argv).warm
