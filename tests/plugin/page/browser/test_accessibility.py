"""What axe finds on the page that keeps somebody from using it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.faults import assert_none
from tests.plugin.page.browser.chromium import page_at
from tests.plugin.page.busy_cluster import a_story, cluster_of, troubled_nodes
from tests.plugin.page.watched_cluster import WatchedCluster, served

pytestmark = pytest.mark.long

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
VIEWS = {
    "jobs": ("", "#rows .row"),
    "job": ("#/team/llama-sft", ".log time"),
    "nodes": ("#/nodes", ".nodes tbody tr"),
}
WINDOWS = ((1400, 900, "light"), (1400, 900, "dark"), (390, 844, "light"), (390, 844, "dark"))


@pytest.fixture(scope="module")
def axe() -> Any:
    module = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe: make test-browser"
    )
    return module.Axe()


def faults_of(axe: Any, page: Any) -> list[str]:
    """Each rule that the page breaks, with the elements that do."""
    broken = axe.run(page).response["violations"]
    return [
        f"{rule['impact']}, {rule['id']}: {node['target']}, {node['failureSummary']}"
        for rule in broken
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: f"{window[0]}-{window[2]}")
def test_axe_finds_nothing(browser: Any, axe: Any, window: tuple[int, int, str]) -> None:
    cluster = cluster_of(40, NOW)
    a_story(cluster, NOW)
    troubled_nodes(cluster)
    faults = []
    with served(cluster, lambda: NOW) as server, served(WatchedCluster(), lambda: NOW) as empty:
        views = {view: (server.url + place, shown) for view, (place, shown) in VIEWS.items()}
        for view, (url, shown) in {**views, "no jobs": (empty.url, "#none")}.items():
            with page_at(browser, url, *window) as page:
                page.locator(shown).first.wait_for()
                faults += [f"{view}: {fault}" for fault in faults_of(axe, page)]
    assert_none(faults)
