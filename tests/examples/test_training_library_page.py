"""The page on the training library shows what is in the code."""

import importlib
import re

import elastic_pytorch
import pytest

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "use" / "training-library.md").read_text()
EXAMPLE = ROOT / "examples" / "char-lm"


def test_the_script_with_the_library_is_as_short_as_the_page_says() -> None:
    assert "a hundred lines shorter" in " ".join(PAGE.split())
    plain, with_library = (
        len((EXAMPLE / script).read_text().splitlines())
        for script in ("train.py", "train_elastic.py")
    )
    assert 90 <= plain - with_library <= 110


@pytest.mark.torch
def test_every_name_on_the_page_exists() -> None:
    names = set(re.findall(r"(?<!\w)elastic\.([A-Za-z_]+)", PAGE))
    assert names >= {
        "State",
        "ElasticSampler",
        "in_process",
        "epochs",
        "steps",
        "report",
        "scale_learning_rate",
    }
    for name in names:
        assert hasattr(elastic_pytorch, name), name
    for name in re.findall(r"(?<!\w)sampler\.([a-z_]+)", PAGE):
        assert hasattr(
            importlib.import_module("elastic_pytorch.training.sampler").ElasticSampler, name
        ), name


@pytest.mark.torch
def test_every_public_name_is_imported_when_it_is_asked_for() -> None:
    assert all(getattr(elastic_pytorch, name) for name in elastic_pytorch.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        elastic_pytorch.nothing  # noqa: B018
