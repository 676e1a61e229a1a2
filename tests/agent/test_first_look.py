from pathlib import Path

import pytest
from agent.scripted_operator import ScriptedOperator, address
from elastic_pytorch.first_look import FirstLook
from elastic_pytorch.settings import read_settings


@pytest.fixture
def token(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("w0")
    return tmp_path / "token"


def look(operator: ScriptedOperator, token: Path) -> bool:
    variables = {
        "ELASTIC_PYTORCH_OPERATOR_URL": operator.url,
        "ELASTIC_PYTORCH_TOKEN_FILE": str(token),
        "ELASTIC_PYTORCH_JOB_UID": "u",
        "ELASTIC_PYTORCH_WORKER": "w0",
    }
    return FirstLook(read_settings(variables)).group_trains()


def test_nobody_trains_before_the_first_round(operator: ScriptedOperator, token: Path) -> None:
    assert not look(operator, token)


def test_a_group_trains_once_there_was_a_round(operator: ScriptedOperator, token: Path) -> None:
    operator.round = {
        "round": 4,
        "members": [{"worker": "w1", "index": 1, "address": address("w1")}],
        "store": {"address": "127.0.0.1", "port": 1},
    }
    assert look(operator, token)


def test_somebody_may_train_if_the_operator_does_not_say(operator: ScriptedOperator, token: Path) -> None:
    operator.answer_with = lambda _: (503, {}, b"busy")
    assert look(operator, token)
    operator.answer_with = lambda _: (200, {}, b"[]")
    assert look(operator, token)
    operator.go_away()
    assert look(operator, token)
