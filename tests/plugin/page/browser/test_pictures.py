"""The pictures of the page in the documentation.

With PICTURES=1 in the environment they are written there.
"""

import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.paths import ROOT
from tests.plugin.page.browser.chromium import page_at
from tests.plugin.page.busy_cluster import a_story, cluster_of, troubled_nodes
from tests.plugin.page.recorded_run import RecordedRun, recorded_at
from tests.plugin.page.watched_cluster import served

pytestmark = pytest.mark.long

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
MAX_BYTES = 150_000
COLORS = 192
PAGES = {
    "jobs": ("", "#rows .row"),
    "job": ("#/team/llama-sft", ".log time"),
    "nodes": ("#/nodes", ".nodes tbody tr"),
}
WIDTHS = {"": (1280, 1020, "light"), "-dark": (1280, 1020, "dark"), "-narrow": (390, 844, "light")}
IN_DOCS = ("jobs", "job", "job-dark", "job-narrow", "nodes", "training")


def save_small(png: bytes, path: Path) -> None:
    """Saves a picture with as few colours as it needs."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLORS).save(path, optimize=True)


def take_picture(page: Any, file: Path) -> None:
    """Takes a picture of a page, no wider than its window; also for the documentation."""
    save_small(page.screenshot(animations="disabled"), file)
    assert file.stat().st_size < MAX_BYTES
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "nothing is wider than the window"
    )
    if os.environ.get("PICTURES") and file.stem in IN_DOCS:
        (ROOT / "docs" / "use" / "page").mkdir(exist_ok=True)
        (ROOT / "docs" / "use" / "page" / file.name).write_bytes(file.read_bytes())


def test_pictures(browser: Any, tmp_path: Path) -> None:
    cluster = cluster_of(40, NOW)
    a_story(cluster, NOW)
    troubled_nodes(cluster)
    with served(cluster, lambda: NOW) as server:
        for name, (place, shown) in PAGES.items():
            _take_in_all_widths(browser, server.url + place, NOW, shown, tmp_path / name)


def test_picture_of_a_recorded_training(browser: Any, tmp_path: Path) -> None:
    with served(RecordedRun(), recorded_at) as server:
        place = f"{server.url}#/default/char-lm"
        _take_in_all_widths(browser, place, recorded_at(), ".log time", tmp_path / "training")


def _take_in_all_widths(browser: Any, url: str, now: datetime, shown: str, file: Path) -> None:
    for suffix, (width, height, scheme) in WIDTHS.items():
        with page_at(browser, "about:blank", width, height, scheme) as page:
            page.clock.set_fixed_time(now)
            page.goto(url)
            page.locator(shown).first.wait_for()
            take_picture(page, file.with_name(f"{file.name}{suffix}.png"))
