import logging
from typing import Any

import pytest
from elastic_pytorch.agent.launch import _count_processes
from elastic_pytorch.agent.options import (
    DECIDED,
    NEWER,
    parse_options,
    unknown_variables,
    worker_arguments,
)
from elastic_pytorch.agent.settings import SettingsError

from tests.torch_features import torchrun_has

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHON_EXEC", raising=False)


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


@pytest.mark.parametrize("argv", [["torchrun", "--nnodes=2", "train.py"], ["python3", "train.py"]])
def test_launcher_in_args_is_refused_with_what_to_write(argv: list[str]) -> None:
    with pytest.raises(SettingsError, match=rf'would follow {argv[0]}: write \["train.py"\]'):
        parse_options(argv)


def test_variables_of_all_options_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "PET_NNODES": "1:4",  # for a plain torchrun, as is the next
        "PET_RDZV_BACKEND": "elastic-pytorch",
        "PET_NPROC_PER_NODE": "4",
        "PET_MAX_RESTARTS": "7",
        "PET_START_METHOD": "spawn",
        "PET_REDIRECTS": "0:3",
        "PET_TEE": "2",
        "PET_LOG_DIR": "/logs",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${rank}: ",
        "PET_SHUTDOWN_TIMEOUT": "20",
        "PET_MONITOR_INTERVAL": "0.5",
        "PET_ROLE": "trainer",
        "PET_LOCAL_RANKS_FILTER": "0,2",
        "PET_DUPLICATE_STDOUT_FILTERS": "loss,a,,b",
        "PET_DUPLICATE_STDERR_FILTERS": "error",
        "PET_EVENT_LOG_HANDLER": "console",
        "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGUSR1",
        "PET_VIRTUAL_LOCAL_RANK": "1",
    }
    understood = {
        "nproc_per_node": "4",
        "max_restarts": 7,
        "monitor_interval": 0.5,
        "start_method": "spawn",
        "role": "trainer",
        "redirects": "0:3",
        "tee": "2",
        "log_dir": "/logs",
        "local_ranks_filter": "0,2",
        "duplicate_stdout_filters": ["loss", "a,b"],
        "duplicate_stderr_filters": ["error"],
        "event_log_handler": "console",
        "signals_to_handle": "SIGTERM,SIGUSR1",
        "shutdown_timeout": 20,
        "virtual_local_rank": True,
    }
    lacking = {name for name in NEWER if not torchrun_has(f"--{name.replace('_', '-')}")}
    for variable, value in variables.items():
        if variable.removeprefix("PET_").lower() not in lacking:
            monkeypatch.setenv(variable, value)
    options = vars(parse_options(["train.py"]))
    for name in understood.keys() - lacking:
        assert options.get(name) == understood[name], name


def test_option_that_an_older_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_VIRTUAL_LOCAL_RANK", "1")
    monkeypatch.setenv("PET_SHUTDOWN_TIMEOUT", "5")  # which the agent carries out itself
    [problem] = unknown_variables({"nnodes", "role"})
    assert problem.startswith("PET_VIRTUAL_LOCAL_RANK is set, but torch ")
    assert "remove it from the container's env" in problem
    assert unknown_variables({"virtual_local_rank"}) == []


@pytest.mark.skipif(
    not torchrun_has("--virtual-local-rank"), reason="this torchrun has no --virtual-local-rank"
)
def test_flag_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_VIRTUAL_LOCAL_RANK", "yes")
    with pytest.raises(SettingsError, match="must be 0 or 1"):
        parse_options(["train.py"])


def test_run_path_runs_the_script_by_its_path_warm_or_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse_options(["--run-path", "--no-python", "/train.py"])
    assert (options.warm, options.run_path, options.no_python) == (True, False, False)
    assert not parse_options(["--run-path", "--start-method=spawn", "/train.py"]).warm
    monkeypatch.setenv("PYTHON_EXEC", "/opt/other/python")  # which torchrun does not ask, either
    assert parse_options(["--run-path", "/train.py"]).warm


@pytest.mark.parametrize("name", DECIDED)
def test_what_the_operator_decides_is_refused_by_name(name: str) -> None:
    option = "--" + name.replace("_", "-")
    argv = [option] if name == "standalone" else [option, "1"]
    with pytest.raises(SettingsError, match=f"{option} .* decided by"):
        parse_options([*argv, "train.py"])


@pytest.mark.parametrize(
    ("argv", "warned"), [(["--max-restarts=5"], True), (["--max-restarts=3"], False), ([], False)]
)
def test_number_of_restarts_that_the_command_line_names_is_said_to_be_no_budget(
    argv: list[str], warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PET_MAX_RESTARTS", "3")
    with caplog.at_level(logging.WARNING):
        options = parse_options([*argv, "train.py"])
    assert options.max_restarts == (5 if warned else 3)
    assert ("decided by spec.failurePolicy.maxFailures" in caplog.text) is warned


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--no-such-option", "train.py"],
        ["--no-python", "-m", "train"],
        ["--monitor-interval=0", "train.py"],
        ["--max-restarts=x", "t.py"],
        ["--max-restarts=-1", "t.py"],
    ],
)
def test_wrong_command_lines_are_refused(argv: list[str]) -> None:
    with pytest.raises(SettingsError):
        parse_options(argv)


@pytest.mark.parametrize(
    ("argv", "environ"),
    [
        (["--start-method=spawn", "t.py"], {}),
        (["--no-python", "prog"], {}),
        (["t.py"], {"PYTHON_EXEC": "/opt/other/python"}),
    ],
)
def test_cold_starts(
    argv: list[str], environ: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert not parse_options(argv).warm


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("xpu", "spec.nprocPerNode is xpu, and the container has no such device: "),
        ("many", "Unsupported nproc_per_node value: many"),
    ],
)
def test_count_of_processes_that_there_is_not_is_an_error(wanted: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _count_processes(wanted)


def test_signals_without_sigterm_are_refused() -> None:
    with pytest.raises(SettingsError, match="must contain SIGTERM"):
        parse_options(["--signals-to-handle=SIGINT", "train.py"])


def test_torch_s_own_variable_of_the_time_to_stop_stands_for_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    assert parse_options(["train.py"]).shutdown_timeout == 7
    assert parse_options(["--shutdown-timeout=5", "train.py"]).shutdown_timeout == 5
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon")
    with pytest.raises(SettingsError, match="invalid int value: 'soon'"):
        parse_options(["train.py"])
