"""The browser of the tests, and a page in it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WAIT_SECONDS = 60
EXECUTABLE = Path("/usr/bin/chromium")
OPTIONS = (
    *(
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync"),
)


@contextmanager
def page_at(
    browser: Any, url: str, width: int = 1280, height: int = 800, scheme: str = "light"
) -> Iterator[Any]:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        locale="en-GB",
        timezone_id="UTC",
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    yield page
    context.close()
    assert said == []
    assert [address for address in asked if not address.startswith("http://127.0.0.1:")] == []


def wait_until(page: Any, expression: str) -> None:
    """Waits until an expression holds in a page.

    Playwright's own wait evaluates texts in the page, which its policy forbids.
    """
    until = time.monotonic() + WAIT_SECONDS
    while not page.evaluate(expression):
        assert time.monotonic() < until, expression
        page.wait_for_timeout(50)
