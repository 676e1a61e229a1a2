import importlib
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def small() -> ModuleType:
    """The module `small_trainer`.

    It imports transformers, which takes seconds: only processes that run these tests pay them, and
    not each that collects them.
    """
    pytest.importorskip(
        "transformers",
        reason="transformers is not installed: `make venv` installs what the tests need",
    )
    return importlib.import_module("tests.worker_image.transformers.small_trainer")
