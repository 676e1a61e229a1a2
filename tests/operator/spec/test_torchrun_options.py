"""torchrun's options as variables, and which are refused, with which words."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.torchrun_options import OPTIONS, InvalidOption, torchrun_variables

GOOD: list[tuple[str, Any, str, str]] = [
    ("maxRestarts", 7, "PET_MAX_RESTARTS", "7"),
    ("startMethod", "spawn", "PET_START_METHOD", "spawn"),
    ("redirects", 3, "PET_REDIRECTS", "3"),
    ("tee", "0:3,1:1", "PET_TEE", "0:3,1:1"),
    ("logDir", "/logs", "PET_LOG_DIR", "/logs"),
    ("logLinePrefixTemplate", "${rank}: ", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${rank}: "),
    ("shutdownTimeoutSeconds", 0, "PET_SHUTDOWN_TIMEOUT", "0"),
]


@pytest.mark.parametrize(("name", "value", "variable", "text"), GOOD)
def test_option_becomes_a_variable(name: str, value: Any, variable: str, text: str) -> None:
    assert torchrun_variables({name: value}) == {variable: text}


def test_every_option_is_tried_here() -> None:
    assert {name for name, *_ in GOOD} == OPTIONS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxRestarts", -1),
        ("maxRestarts", True),
        ("startMethod", "thread"),
        ("logDir", ""),
        ("redirects", 4),
        ("tee", "0:3,"),
    ],
)
def test_malformed_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"{name} must not be"):
        torchrun_variables({name: value})


def test_unknown_options_are_refused() -> None:
    with pytest.raises(InvalidOption, match=r"noSuchOption is not a field of spec\.torchrun"):
        torchrun_variables({"noSuchOption": 1})
