"""A real browser, where there is one."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.plugin.page.browser.chromium import EXECUTABLE, OPTIONS


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: make test-browser"
    )
    if not EXECUTABLE.exists():
        pytest.skip(f"needs {EXECUTABLE}: make test-browser")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=str(EXECUTABLE), args=list(OPTIONS))
        yield browser
        browser.close()
