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
from tests.plugin.page.busy_cluster import a_story, an_interruption, cluster_of, troubled_nodes
from tests.plugin.page.recorded_run import RecordedRun, states
from tests.plugin.page.watched_cluster import events_of_page, served
from tests.plugin.recorded_cluster import Object

pytestmark = pytest.mark.long

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
SEEN = timedelta(minutes=6)
LOOKS = 36
MAX_BYTES = 150_000
COLORS = 96
PAGES = {"jobs": ("", "#rows .row"), "job": ("#/team/llama-sft", ".log time"), "nodes": ("#/nodes", ".nodes tbody tr")}
WIDTHS = {"": (1280, 860, "light"), "-dark": (1280, 860, "dark"), "-narrow": (390, 844, "light")}
IN_DOCS = ("jobs", "job", "nodes", "training")


def save_small(png: bytes, path: Path) -> None:
    """Saves a picture with as few colours as it needs."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLORS).save(path, optimize=True)


def take_picture(page: Any, file: Path) -> None:
    """Takes a picture of a page, which is no wider than its window; also for the documentation, if it is one of its pictures."""
    save_small(page.screenshot(animations="disabled"), file)
    assert file.stat().st_size < MAX_BYTES
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"
    if os.environ.get("PICTURES") and file.stem in IN_DOCS:
        (ROOT / "docs" / "use" / "page").mkdir(exist_ok=True)
        (ROOT / "docs" / "use" / "page" / file.name).write_bytes(file.read_bytes())


def _lose_a_worker(job: Object, look: int) -> None:
    """Has a worker of a job be gone at one look, and its replacement be there at a later one."""
    status = job["status"]
    if look == 20:
        status["workers"].pop(1)
        status["round"] += 1
        loss = an_interruption(random.Random(9), NOW, status["round"]) | {"cause": "WorkerLost"}
        status["recentInterruptions"] = [*status.get("recentInterruptions", ()), loss]
    elif look == 24:
        name = f"{job['metadata']['name']}-worker-1-c0ffe"
        status["workers"].insert(1, {"index": 1, "rank": 1, "name": name, "node": "gpu-22", "state": "Running"})


def test_pictures(browser: Any, tmp_path: Path) -> None:
    moment, chance = [NOW - SEEN], random.Random(5)
    cluster = cluster_of(40, NOW)
    story = a_story(cluster, NOW)
    troubled_nodes(cluster)
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
                    if job is jobs[1]:
                        _lose_a_worker(job, look)
                    cluster.change(job)
                while not any(row["step"] == jobs[-1]["status"]["progress"]["step"] for row in next(messages)["rows"]):
                    pass
        for suffix, (width, height, scheme) in WIDTHS.items():
            for name, (place, shown) in PAGES.items():
                with page_at(browser, "about:blank", width, height, scheme) as page:
                    page.clock.set_fixed_time(NOW)
                    page.goto(server.url + place)
                    page.locator(shown).first.wait_for()
                    take_picture(page, tmp_path / f"{name}{suffix}.png")


def test_picture_of_a_recorded_training(browser: Any, tmp_path: Path) -> None:
    cluster = RecordedRun()
    moment = [states()[0][0]]
    with served(cluster, lambda: moment[0]) as server:
        cluster.play(server, moment)
        for suffix, (width, height, scheme) in WIDTHS.items():
            with page_at(browser, "about:blank", width, height, scheme) as page:
                page.clock.set_fixed_time(moment[0])
                page.goto(f"{server.url}#/default/char-lm")
                page.locator(".log time").first.wait_for()
                take_picture(page, tmp_path / f"training{suffix}.png")
