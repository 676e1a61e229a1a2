"""The page in a real browser: it is fast and live, and no text of a tenant is markup."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from elastic_pytorch_client.errors import NotAllowed
from elastic_pytorch_client.page.server import PageServer

from tests.plugin.page.browser.chromium import page_at, wait_until
from tests.plugin.page.busy_cluster import a_story, cluster_of, troubled_nodes
from tests.plugin.page.watched_cluster import WatchedCluster, served
from tests.plugin.recorded_cluster import Object

pytestmark = pytest.mark.long

JOBS = 1000
# A healthy machine needs less than one second; this is for one that does much else.
FIRST_PAINT_MS = 10_000
MARKUP = "<img src=x onerror='document.title=1'><script>document.title=2</script><b>bold</b>"
NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


@pytest.fixture
def cluster() -> WatchedCluster:
    cluster = cluster_of(30, NOW)
    a_story(cluster, NOW)
    return cluster


@pytest.fixture
def server(cluster: WatchedCluster) -> Iterator[PageServer]:
    with served(cluster, lambda: NOW) as running:
        yield running


def shown_after(page: Any, mark: str) -> float:
    """The milliseconds from the beginning of a page until it has made a mark."""
    wait_until(page, f"performance.getEntriesByName('{mark}').length > 0")
    return float(page.evaluate(f"performance.getEntriesByName('{mark}')[0].startTime"))


def with_markup(job: Object) -> Object:
    """A job in which every text that a tenant can choose, and many that they cannot, is markup."""
    status = job["status"]
    for condition in status["conditions"]:
        condition |= {"message": MARKUP, "reason": MARKUP}
    status["conditions"].append(
        {"type": "Degraded", "status": "True", "reason": MARKUP, "message": MARKUP}
    )
    status["rootCause"] |= {"message": MARKUP, "worker": MARKUP, "node": MARKUP}
    for entry in status["history"]:
        entry.update({"cause": MARKUP} if "seconds" in entry else {})
    status["stragglers"][0] |= {"slowdown": MARKUP}
    status["progress"]["metrics"] = {MARKUP: "1"}
    job["metadata"]["annotations"] = {"note": MARKUP}
    return job


def test_a_thousand_jobs_are_shown_at_once(
    browser: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(cluster_of(JOBS, NOW), lambda: NOW) as server, page_at(browser, server.url) as page:
        milliseconds = shown_after(page, "jobs-shown")
        with capsys.disabled():
            print(f"\n{JOBS} jobs are shown {milliseconds:.0f} ms after the page began")
        assert milliseconds < FIRST_PAINT_MS
        assert page.locator("#rows .row").count() < 40, "only what is in sight is drawn"
        assert page.locator("#table").get_attribute("aria-rowcount") == str(JOBS + 1)
        page.locator("#rows .row").first.focus()
        page.keyboard.press("End")
        last = page.locator(f'#rows .row[aria-rowindex="{JOBS + 1}"]')
        last.wait_for()
        wait_until(
            page,
            "document.activeElement.ariaRowIndex == document.querySelector('#table').ariaRowCount",
        )
        assert last.evaluate("row => row.getBoundingClientRect().bottom <= innerHeight")


def test_a_changed_job_and_a_deleted_one(
    browser: Any, cluster: WatchedCluster, server: PageServer
) -> None:
    with page_at(browser, server.url) as page:
        page.locator("#filter").fill("llama-sft team")
        row = page.locator("#rows .row", has=page.get_by_text("llama-sft", exact=True))
        row.wait_for()
        job = cluster.get_job("team", "llama-sft")
        for step, loss in ((41_300, "1.7"), (41_400, "1.6")):
            job["status"]["progress"] |= {"step": step, "loss": loss}
            cluster.change(job)
            row.get_by_text(f"{step:,} / 60,000").wait_for()
        row.locator("svg.spark").wait_for()
        cluster.delete("llama-sft")
        row.wait_for(state="detached")


def test_the_keyboard_is_enough(browser: Any, server: PageServer) -> None:
    with page_at(browser, server.url) as page:
        page.locator("#rows .row").first.wait_for()
        page.keyboard.press("/")
        page.keyboard.type("sft running")
        page.locator("#rows .row").first.wait_for()
        page.keyboard.press("Enter")
        wait_until(page, "document.activeElement.getAttribute('role') === 'row'")
        name = page.evaluate("document.activeElement.querySelector('b').textContent")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name=name, exact=True).wait_for()
        page.keyboard.press("Escape")
        wait_until(page, "document.activeElement.getAttribute('role') === 'row'")
        assert page.evaluate("document.activeElement.querySelector('b').textContent") == name


def test_the_address_keeps_filter_namespace_state_and_order(
    browser: Any, cluster: WatchedCluster, server: PageServer
) -> None:
    job = cluster.get_job("team", "llama-sft")
    job["metadata"]["namespace"] = "vision"
    cluster.change(job)
    with page_at(browser, server.url) as page:
        for order, direction in ((1, "ascending"), (-1, "descending")):
            page.get_by_role("columnheader", name="Loss").get_by_role("button").click()
            page.locator(
                f'[role="columnheader"][aria-sort="{direction}"]', has_text="Loss"
            ).wait_for()
            told = [
                text
                for text in page.locator("#rows .cell.loss .line").all_text_contents()
                if text[0].isdigit()
            ]
            assert len(told) > 5
            assert told == sorted(told, key=lambda text: order * float(text))
        page.locator("#filter").fill("sft")
        page.get_by_label("Namespace").select_option("vision")
        page.locator("#chips button", has_text="Running").click()
        wait_until(page, "document.querySelectorAll('#rows .row').length === 1")
        place = page.url
        assert place.endswith("#/?sort=-loss&filter=sft&namespace=vision&state=Running")
        page.reload()
        page.locator("#rows .row").first.wait_for()
        assert page.locator("#rows .row b").all_text_contents() == ["llama-sft"]
        assert page.locator("#filter").input_value() == "sft"
        page.keyboard.press("n")
        shown_after(page, "nodes-shown")
        page.keyboard.press("Escape")
        page.locator("#rows .row").first.wait_for()
        assert page.url == place
        page.get_by_role("link", name="Jobs", exact=True).click()
        wait_until(page, "document.querySelectorAll('#rows .row').length > 5")


def test_one_job_and_its_logs(browser: Any, cluster: WatchedCluster, server: PageServer) -> None:
    with page_at(browser, f"{server.url}#/team/llama-sft") as page:
        shown_after(page, "job-shown")
        titles = ["Timeline", "Interruptions", "Workers", "Last failure", "Conditions", "Events"]
        for title in titles:
            page.get_by_role("heading", name=title, exact=True).wait_for()
        page.get_by_text("ValueError: loss is not finite at step 41200: nan").wait_for()
        page.get_by_text("kubectl describe node gpu-15").wait_for()
        worker = cluster.get_job("team", "llama-sft")["status"]["workers"][5]["name"]
        cluster.logs[worker] = ["2026-11-21T18:01:30Z only rank 5 says this"]
        page.locator(".workers tr", has_text=worker).get_by_role("button", name="log").click()
        page.get_by_text("only rank 5 says this").wait_for()
        page.get_by_text("Manifest", exact=True).click()
        page.get_by_text("kind: ElasticPyTorchJob").wait_for()
        assert page.locator("svg.timeline rect.group").count() == 7
        assert page.locator("svg.timeline text.round").all_text_contents() == [
            str(round_) for round_ in range(1, 8)
        ]
        assert page.locator("svg.timeline polyline.line").count() == 2, "loss and speed"


def test_loss_speed_and_workers_at_a_time(browser: Any, server: PageServer) -> None:
    with page_at(browser, f"{server.url}#/team/llama-sft") as page:
        page.locator("svg.timeline polyline.line").nth(1).wait_for()
        names = page.locator("svg.timeline text.tick[x='0']").all_text_contents()
        assert names == ["workers", "loss", "steps/s", "events"]
        assert (
            page.locator(".timeline .legend span").all_text_contents()[2] == "training stands still"
        )
        picture = page.locator("svg.timeline")
        picture.scroll_into_view_if_needed()
        picture.hover(position={"x": picture.bounding_box()["width"] / 2, "y": 100})
        values = page.locator(".timeline .small").text_content()
        assert re.fullmatch(
            r".*17:\d\d:\d\d · 8 workers in round 3 · loss [\d.]+ · 5\.\d steps/s", values
        ), values
        page.get_by_role("button", name="10 min").click()
        assert page.url.endswith("#/team/llama-sft?range=600")
        wait_until(page, "document.querySelectorAll('svg.timeline rect.group').length === 3")
        page.reload()
        page.locator("svg.timeline rect.group").first.wait_for()
        assert page.get_by_role("button", name="10 min").get_attribute("aria-pressed") == "true"


def test_a_speed_that_ended_before_the_range_keeps_its_axis(
    browser: Any, cluster: WatchedCluster, server: PageServer
) -> None:
    job = cluster.get_job("team", "llama-sft")
    job["status"]["worldSize"] = 0
    history = job["status"]["history"]
    job["status"]["history"] = [each for each in history if each["time"] < "2026-11-21T17:40"]
    cluster.put(job)
    with page_at(browser, f"{server.url}#/team/llama-sft?range=600") as page:
        page.locator("svg.timeline polyline.line").nth(1).wait_for()
        ticks = page.locator("svg.timeline text.tick").all_text_contents()
        assert "steps/s" in ticks
        assert "∞" not in "".join(ticks)


def test_nodes_in_trouble(browser: Any, cluster: WatchedCluster, server: PageServer) -> None:
    troubled_nodes(cluster)
    with page_at(browser, server.url) as page:
        page.locator("#rows .row").first.wait_for()
        page.keyboard.press("n")
        shown_after(page, "nodes-shown")
        names = page.locator(".nodes tbody tr .node code").all_text_contents()
        assert names[0] == "gpu-09", "the one that is not ready comes first"
        assert {"gpu-04", "gpu-13", "gpu-15", "gpu-17", "gpu-31"} <= set(names)
        found = page.get_by_role("link", name="Nodes", exact=True).get_attribute("aria-current")
        assert found == "page"
        page.get_by_role("table", name="Nodes in trouble, the worst first").wait_for()
        job = cluster.get_job("team", "llama-sft")
        job["status"]["workers"][1]["state"] = "Lost"
        cluster.change(job)
        lost = job["status"]["workers"][1]
        page.locator(".nodes tr", has_text=lost["node"]).get_by_text(
            f"{lost['name']} is lost"
        ).wait_for()
        link = page.locator(".nodes tr", has_text="gpu-15").get_by_role(
            "link", name="job llama-sft in team"
        )
        link.focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="llama-sft", exact=True).wait_for()
        page.keyboard.press("Escape")
        page.locator("#rows .row").first.wait_for()


def test_nodes_that_may_not_be_listed(
    browser: Any, cluster: WatchedCluster, server: PageServer
) -> None:
    cluster.faults = {"list_nodes": [NotAllowed("nodes is forbidden")]}
    with page_at(browser, f"{server.url}#/nodes") as page:
        page.get_by_text("You may not list nodes").wait_for()
        page.locator(".nodes tr", has_text="gpu-13").wait_for()


def test_the_nodes_of_a_thousand_jobs(browser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        served(cluster_of(JOBS, NOW), lambda: NOW) as server,
        page_at(browser, f"{server.url}#/nodes") as page,
    ):
        milliseconds = shown_after(page, "nodes-shown")
        with capsys.disabled():
            print(
                f"\nthe nodes of {JOBS} jobs are shown {milliseconds:.0f} ms after the page began"
            )
        assert milliseconds < FIRST_PAINT_MS


def test_no_text_of_a_tenant_is_markup(
    browser: Any, cluster: WatchedCluster, server: PageServer
) -> None:
    job = with_markup(cluster.get_job("team", "llama-sft"))
    cluster.change(job)
    cluster.logs = {
        worker["name"]: [f"2026-11-21T18:01:30Z {MARKUP}"] for worker in job["status"]["workers"]
    }
    with page_at(browser, server.url) as page:
        page.locator("#rows .row", has_text=MARKUP).wait_for()
        page.locator("#rows .row", has_text=MARKUP).click()
        parts = (".why", ".cause", ".interruptions", ".workers", ".conditions", ".log", ".facts")
        for part in parts:
            page.locator(part, has_text=MARKUP).first.wait_for()
        assert page.title() == "llama-sft · Jobs"
        assert page.locator("img, main script, td b").count() == 0
        page.keyboard.press("n")
        page.locator(".nodes tr", has_text=MARKUP).first.wait_for()
        assert page.title() == "Nodes"
        assert page.locator("img, main script, td b, td img").count() == 0


def test_a_job_that_is_not_there_and_a_server_that_has_ended(
    browser: Any, server: PageServer
) -> None:
    with page_at(browser, server.url) as page:
        page.locator("#rows .row").first.wait_for()
        page.locator('#link[data-state="live"]').wait_for()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}#/team/none")
    page.get_by_role("alert").filter(has_text="there is no ElasticPyTorchJob").wait_for()
    assert page.locator("#job .card").filter(visible=True).count() == 0, (
        "nothing is shown of a job that is not there"
    )
    server.live.stop()
    server.shutdown()
    server.server_close()
    page.get_by_role("alert").filter(
        has_text="What is shown is old: kubectl epj ui does not answer."
    ).wait_for()
    context.close()


def test_a_page_without_jobs_says_so(browser: Any) -> None:
    with served(WatchedCluster(), lambda: NOW) as server, page_at(browser, server.url) as page:
        page.get_by_text("The namespace team has no ElasticPyTorchJobs.").wait_for()
        page.get_by_text("kubectl epj ui -A", exact=True).wait_for()


def test_jobs_that_a_filter_leaves_out(browser: Any, server: PageServer) -> None:
    with page_at(browser, f"{server.url}#/?filter=nothing-has-this") as page:
        page.get_by_text("No job matches.").wait_for()
        page.get_by_role("link", name="Show all jobs").click()
        page.locator("#rows .row").first.wait_for()


def test_a_log_is_searched_and_downloaded(
    browser: Any, cluster: WatchedCluster, server: PageServer
) -> None:
    with page_at(browser, f"{server.url}#/team/llama-sft") as page:
        page.locator(".log time").nth(100).wait_for()
        page.get_by_label("Search the log").fill("STEP 41080 ")
        wait_until(page, "document.querySelectorAll('.log time').length === 1")
        page.get_by_label("Search the log").fill("no such word")
        page.get_by_text("None of the last 120 lines has this text.").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="download all").click()
        pod = cluster.get_job("team", "llama-sft")["status"]["workers"][0]["name"]
        assert download.value.suggested_filename == f"{pod}.log"
        assert download.value.path().read_text().splitlines() == cluster.logs[pod]


def test_stacks_by_a_button(browser: Any, cluster: WatchedCluster) -> None:
    groups = [
        {"name": "ranks 0-6", "stack": "File all_reduce", "trouble": "", "waitedFor": False},
        {"name": "rank 7", "stack": f"File {MARKUP}", "trouble": "", "waitedFor": True},
    ]
    with (
        served(cluster, lambda: NOW, lambda job: groups) as server,
        page_at(browser, f"{server.url}#/team/llama-sft") as page,
    ):
        page.get_by_role("button", name="Read stacks").click()
        page.get_by_role(
            "heading", name="rank 7, outside of the collective that the others wait in"
        ).wait_for()
        assert page.locator(".stacks pre").all_text_contents() == [
            "File all_reduce",
            f"File {MARKUP}",
        ]


def test_a_theme_stays(browser: Any, server: PageServer) -> None:
    with page_at(browser, server.url) as page:
        color = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(color)
        page.get_by_label("Theme").select_option("dark")
        dark = page.evaluate(color)
        assert dark != light
        page.reload()
        wait_until(page, f"{color} === '{dark}'")
        assert page.get_by_label("Theme").input_value() == "dark"
