import argparse

import pytest
from bench import __main__ as program


def test_scaling_up_and_down_take_turns() -> None:
    ordered = program.in_order(["drain", "scale-up", "scale-down", "lose-node"], 2)
    assert [(scenario.name, turn) for scenario, turn in ordered] == [
        ("drain", 0),
        ("drain", 1),
        ("scale-up", 0),
        ("scale-down", 0),
        ("scale-up", 1),
        ("scale-down", 1),
        ("lose-node", 0),
        ("lose-node", 1),
    ]


def test_trials_with_a_handler_come_last_and_not_with_the_library() -> None:
    ordered = program.in_order(["kill-process", "kill-process-handler", "cut-node", "cut-node-handler"], 1)
    assert [scenario.name for scenario, _ in ordered] == [
        "kill-process",
        "cut-node",
        "kill-process-handler",
        "cut-node-handler",
    ]
    assert "cut-node-handler" in program.parse_options([]).only
    assert "cut-node-handler" not in program.parse_options(["--library"]).only


def test_only_kinds_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    options: argparse.Namespace = program.parse_options(["--only", "lose-node,drain", "--trials", "2"])
    assert (options.only, options.trials) == (["drain", "lose-node"], 2)
    with pytest.raises(SystemExit):
        program.parse_options(["--only", "earthquake"])
    assert "no such kind: earthquake; there are kill-process" in capsys.readouterr().err
