"""Options of a State are apart from what is registered, so no name is taken for another."""

from dataclasses import fields
from typing import Any

import elastic_pytorch as elastic
import pytest
from elastic_pytorch.state.options import Options
from torch import nn

pytestmark = pytest.mark.torch

NAMES = [each.name for each in fields(Options)]


@pytest.mark.parametrize("name", [*NAMES, "folder", "options", "self"])
def test_object_may_have_any_name(name: str) -> None:
    model = nn.Linear(2, 2)
    state = elastic.State(None, **{name: model})
    assert state._objects == {name: model}


@pytest.mark.parametrize("name", NAMES)
def test_plain_value_with_the_name_of_an_option_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"State\(folder, State.Options\({name}=…\), model=model\)"
    ):
        elastic.State(None, model=nn.Linear(2, 2), **{name: 1})


@pytest.mark.parametrize("options", [{"keep": 0}, {"every": 0}, {"flush_seconds": -1.0}])
def test_number_that_is_too_small_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match="keep and every must be at least 1, and flush_seconds not negative"
    ):
        elastic.State.Options(**options)


def test_end_of_a_training_is_given_once() -> None:
    state = elastic.State(None, elastic.State.Options(total_steps=9), model=nn.Linear(2, 2))
    with pytest.raises(ValueError, match="the training's end is given twice"):
        state._expect_end(9)
