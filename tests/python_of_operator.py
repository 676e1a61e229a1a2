"""A module of tests that imports this is left out on a Python that the operator does not run on."""

import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the operator needs Python 3.11", allow_module_level=True)
