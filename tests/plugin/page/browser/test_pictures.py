"""The pictures of the page in the documentation. With PICTURES=1 in the environment they are written there."""

import copy
import io
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.paths import ROOT
from tests.plugin.page.browser.chromium import page_at
from tests.plugin.page.busy_cluster import a_story, cluster_of
from tests.plugin.page.watched_cluster import events_of_page, served

pytestmark = pytest.mark.long

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
SEEN = timedelta(minutes=6)
LOOKS = 36
MAX_BYTES = 150_000
COLORS = 96
PAGES = {"jobs": "", "job": "#/team/llama-sft"}
WIDTHS = {"": (1280, 860, "light"), "-dark": (1280, 860, "dark"), "-narrow": (390, 844, "light")}
IN_DOCS = ("jobs", "job")


def save_small(png: bytes, path: Path) -> None:
    """Saves a picture with as few colours as it needs."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLORS).save(path, optimize=True)


def test_pictures(browser: Any, tmp_path: Path) -> None:
    moment, chance = [NOW - SEEN], random.Random(5)
    cluster = cluster_of(40, NOW)
    story = a_story(cluster, NOW)
    jobs = [copy.deepcopy(job) for job in cluster.list_jobs("team") if job["status"].get("worldSize")]
    with served(cluster, lambda: moment[0]) as server:
        with events_of_page(server) as messages:
            next(messages)
            for look in range(LOOKS):
                moment[0] += SEEN / LOOKS
                for job in jobs:
                    progress = job["status"]["progress"]
                    progress["step"] += 1
                    progress["loss"] = f"{float(progress['loss']) * 0.985 + chance.uniform(-0.03, 0.03):.4f}"
                    if job["metadata"]["name"] == story["metadata"]["name"]:
                        job["status"]["workers"][2]["state"] = {20: "Silent", 21: "Silent", 22: "Starting", 23: "Ready"}.get(
                            look, "Running"
                        )
                    cluster.change(job)
                while not any(row["step"] == jobs[-1]["status"]["progress"]["step"] for row in next(messages)["rows"]):
                    pass
        for suffix, (width, height, scheme) in WIDTHS.items():
            for name, place in PAGES.items():
                with page_at(browser, "about:blank", width, height, scheme) as page:
                    page.clock.set_fixed_time(NOW)
                    page.goto(server.url + place)
                    page.locator("#rows .row" if name == "jobs" else ".log time").first.wait_for()
                    picture = tmp_path / f"{name}{suffix}.png"
                    save_small(page.screenshot(animations="disabled"), picture)
                    assert picture.stat().st_size < MAX_BYTES
                    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                        "nothing is wider than the window"
                    )
                    if os.environ.get("PICTURES") and picture.stem in IN_DOCS:
                        (ROOT / "docs" / "use" / "page").mkdir(exist_ok=True)
                        (ROOT / "docs" / "use" / "page" / picture.name).write_bytes(picture.read_bytes())
