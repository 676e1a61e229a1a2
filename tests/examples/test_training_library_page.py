"""The page on the training library shows what is in the code."""

import importlib
import re

import elastic_pytorch
import pytest

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "use" / "training-library.md").read_text()
EXAMPLE = ROOT / "examples" / "char-lm"


def test_the_diff_is_what_the_examples_differ_in() -> None:
    [diff] = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    for script, marks in (("train.py", "- "), ("train_elastic.py", "+ ")):
        shown = [line[1:] for line in diff.splitlines() if line[0] in marks]
        lines = iter((EXAMPLE / script).read_text().splitlines())
        missing = [line for line in shown if line not in lines]
        assert not missing, f"{script} has these lines in this order"
    before, after = (len((EXAMPLE / script).read_text().splitlines()) for script in ("train.py", "train_elastic.py"))
    assert "little more than half as long" in " ".join(PAGE.split())
    assert 0.5 < after / before < 0.6


@pytest.mark.torch
def test_every_name_on_the_page_exists() -> None:
    names = set(re.findall(r"(?<!\w)elastic\.([A-Za-z_]+)", PAGE))
    assert names >= {"State", "ElasticSampler", "in_process", "epochs", "steps", "report", "scale_learning_rate"}
    for name in names:
        assert hasattr(elastic_pytorch, name), name
    own_words = re.sub(r"```diff\n.*?```", "", PAGE, flags=re.DOTALL)
    for name in re.findall(r"(?<!\w)sampler\.([a-z_]+)", own_words):
        assert hasattr(importlib.import_module("elastic_pytorch.training.sampler").ElasticSampler, name), name


@pytest.mark.torch
def test_every_public_name_is_imported_when_it_is_asked_for() -> None:
    assert all(getattr(elastic_pytorch, name) for name in elastic_pytorch.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        elastic_pytorch.nothing  # noqa: B018
