import importlib
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def small() -> ModuleType:
    """The module `small_training`.

    It imports Lightning, which takes seconds: only processes that run these tests pay them, and not
    each that collects them.
    """
    pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")
    return importlib.import_module("tests.worker_image.lightning.small_training")
