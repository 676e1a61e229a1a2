"""The page's server, over real connections."""

import io
import json
import webbrowser
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path

import pytest
from elastic_pytorch_client import cli
from elastic_pytorch_client.errors import NotAllowed, Unreachable
from elastic_pytorch_client.page.server import LOG_LINES, PageServer
from elastic_pytorch_client.verbs.context import Context
from elastic_pytorch_client.verbs.ui import open_page
from elastic_pytorch_client.watch import Clock
from rich.console import Console

from tests.faults import assert_none, fault_of
from tests.plugin.page.watched_cluster import WatchedCluster, ask, events_of_page, served
from tests.plugin.recorded_cluster import RecordedCluster, recorded

pytestmark = pytest.mark.process

STATIC = Path(str(files("elastic_pytorch_client.page") / "static"))
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def cluster() -> WatchedCluster:
    return WatchedCluster("young", "failed")


@pytest.fixture
def server(cluster: WatchedCluster) -> Iterator[PageServer]:
    with served(cluster) as running:
        yield running


def get(server: PageServer, path: str) -> tuple[int, dict[str, object]]:
    code, body, _ = ask(server, f"/{server.secret}/{path}")
    return code, json.loads(body)


def check_file(path: str, server: PageServer) -> None:
    code, body, headers = ask(server, f"/{server.secret}/{path}")
    assert (code, body) == (200, (STATIC / (path or "page.html")).read_text())
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    names = ("X-Content-Type-Options", "Referrer-Policy", "Cache-Control")
    assert [headers[name] for name in names] == ["nosniff", "no-referrer", "no-store"]
    assert "://" not in body.replace("http://www.w3.org/", ""), "it needs nothing of another server"


def test_the_files_of_the_page(server: PageServer) -> None:
    paths = ["", *sorted(file.name for file in STATIC.iterdir())]
    assert_none(
        f"{path}: {fault}" for path in paths for fault in fault_of(check_file, path, server)
    )


@pytest.mark.parametrize(
    "path",
    ["/", "/wrong/", "/page.js", "/events", "/jobs/team/char-lm", "//{secret}/", "/x/../{secret}/"],
)
def test_nothing_is_answered_without_the_secret(path: str, server: PageServer) -> None:
    code, body, headers = ask(server, path.format(secret=server.secret))
    allowed = path == "//{secret}/"  # http.server makes one slash of two
    assert code == (200 if allowed else 403)
    assert server.secret not in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["events", "jobs/team/char-lm"])
def test_no_other_page_and_no_other_host_is_answered(path: str, server: PageServer) -> None:
    whole = f"/{server.secret}/{path}"
    assert ask(server, whole, Origin="http://evil.example")[0] == 403
    assert ask(server, whole, Host="evil.example")[0] == 403
    assert ask(server, whole, Host=f"evil.example:{server.server_port}")[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_it_answers_get_only(method: str, cluster: WatchedCluster, server: PageServer) -> None:
    assert ask(server, f"/{server.secret}/jobs/team/char-lm", method)[0] == 405
    assert ask(server, "/", method)[0] == 403
    assert cluster.calls == []


def test_what_is_not_there(server: PageServer) -> None:
    files = "page.py ../server.py ..%2fserver.py static/page.js x jobs jobs/team jobs/team/"
    odd = "jobs/team/a/b jobs/../char-lm logs/team/%2e%2e manifests/team/a%2fb"
    paths = [*files.split(), *odd.split()]
    found = {path: ask(server, f"/{server.secret}/{path}")[0] for path in paths}
    assert found == dict.fromkeys(paths, 404)


def test_a_stream_tells_all_jobs_then_each_change(
    cluster: WatchedCluster, server: PageServer
) -> None:
    with events_of_page(server) as messages:
        first = next(messages)
        assert {row["name"] for row in first["rows"]} == {"char-lm", "fails"}
        assert (first["removed"], first["trouble"]) == ([], "")
        job = cluster.get_job("team", "char-lm")
        job["status"]["progress"] |= {"step": 555, "loss": "NaN"}
        cluster.change(job)
        [row] = next(messages)["rows"]
        assert (row["name"], row["step"], row["loss"]) == ("char-lm", 555, "nan")
        cluster.delete("fails")
        gone = next(messages)
        assert (gone["rows"], len(gone["removed"])) == ([], 1)


def test_a_stream_of_no_jobs_says_so() -> None:
    with served(WatchedCluster()) as server, events_of_page(server) as messages:
        assert next(messages) == {"rows": [], "removed": [], "trouble": "", "namespace": "team"}


def test_a_tenants_markup_arrives_as_data(cluster: WatchedCluster, server: PageServer) -> None:
    job = recorded("failed")["job"]
    job["status"]["rootCause"] |= {"message": MARKUP, "worker": MARKUP}
    for condition in job["status"]["conditions"]:
        condition["message"] = MARKUP
    with events_of_page(server) as messages:
        next(messages)
        cluster.change(job)
        [row] = next(messages)["rows"]
        assert row["note"] == MARKUP
    code, body, headers = ask(server, f"/{server.secret}/jobs/team/fails")
    assert (code, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["rootCause"]["message"] == MARKUP


def test_one_job_its_manifest_and_its_log(cluster: WatchedCluster, server: PageServer) -> None:
    worker = recorded("young")["job"]["status"]["workers"][0]
    cluster.logs = {worker["name"]: [f"2026-11-21T18:01:3{i}.5Z \x1b[1mstep {i}" for i in range(9)]}
    code, found = get(server, "jobs/team/char-lm")
    assert code == 200
    assert {"row", "why", "timeline", "workers", "conditions", "rootCause"} <= set(found)
    code, found = get(server, "manifests/team/char-lm")
    assert "kind: ElasticPyTorchJob" in str(found["yaml"])
    code, found = get(server, f"logs/team/char-lm?index={worker['index']}")
    lines = found["lines"]
    assert isinstance(lines, list)
    assert lines[-1] == {"at": "2026-11-21T18:01:38.5Z", "text": "step 8"}
    for odd in ("-1", "", "x", "9" * 5000, "99"):
        assert get(server, f"logs/team/char-lm?index={odd}") == (200, {"lines": []})


def test_the_end_of_a_log_and_the_whole(cluster: WatchedCluster, server: PageServer) -> None:
    worker = recorded("young")["job"]["status"]["workers"][0]
    cluster.logs = {
        worker["name"]: [f"2026-11-21T18:01:31.{i:03}Z step {i}" for i in range(LOG_LINES + 9)]
    }
    for query, first in (("", 9), ("&whole=1", 0)):
        _, found = get(server, f"logs/team/char-lm?index={worker['index']}{query}")
        assert [line["text"] for line in found["lines"]] == [
            f"step {i}" for i in range(first, LOG_LINES + 9)
        ]  # type: ignore[attr-defined]


def test_stacks_where_they_can_be_read(cluster: WatchedCluster, server: PageServer) -> None:
    assert get(server, "jobs/team/char-lm")[1]["stacks"] is False
    assert ask(server, f"/{server.secret}/stacks/team/char-lm")[0] == 404
    with served(cluster, stacks_of=lambda job: [{"name": job.name, "stack": "File"}]) as other:
        assert get(other, "jobs/team/char-lm")[1]["stacks"] is True
        assert get(other, "stacks/team/char-lm") == (
            200,
            {"groups": [{"name": "char-lm", "stack": "File"}]},
        )
        assert get(other, "stacks/team/none")[0] == 404


def test_what_the_api_server_refuses_is_said(cluster: WatchedCluster, server: PageServer) -> None:
    code, found = get(server, "jobs/team/none")
    assert (code, "there is no ElasticPyTorchJob" in str(found["error"])) == (404, True)
    cluster.faults = {"list_pods": [NotAllowed("pods is forbidden")], "get_job": []}
    assert get(server, "jobs/team/char-lm") == (403, {"error": "pods is forbidden"})
    cluster.faults = {"get_job": [Unreachable("no answer")]}
    assert get(server, "manifests/team/char-lm") == (502, {"error": "no answer"})


def test_nodes(cluster: WatchedCluster, server: PageServer) -> None:
    code, found = get(server, "nodes")
    assert (code, found["listed"], found["more"]) == (200, True, 0)
    with events_of_page(server) as messages:
        next(messages)
        job = cluster.get_job("team", "char-lm")
        lost = job["status"]["workers"][-1]
        lost["state"] = "Lost"
        cluster.change(job)
        next(messages)
        _, found = get(server, "nodes")
    [row] = [row for row in found["nodes"] if row["name"] == lost["node"]]  # type: ignore[attr-defined]
    assert row["findings"][0]["what"].startswith(f"{lost['name']} is lost")


def test_nodes_that_the_user_may_not_list(cluster: WatchedCluster, server: PageServer) -> None:
    cluster.faults = {"list_nodes": [NotAllowed("nodes is forbidden")]}
    code, found = get(server, "nodes")
    assert (code, found["listed"]) == (200, False)


def test_two_servers_have_two_secrets(cluster: WatchedCluster, server: PageServer) -> None:
    with served(WatchedCluster()) as other:
        assert other.secret != server.secret
        assert len(other.secret) == 32
        assert server.server_address[0] == "127.0.0.1"


def test_the_verb_serves_until_ctrl_c() -> None:
    cluster = WatchedCluster("young")
    console = Console(file=io.StringIO(), width=200, highlight=False)
    answers: list[int] = []
    ports: list[int] = []

    def sleep(seconds: float) -> None:
        assert isinstance(console.file, io.StringIO)
        address = console.file.getvalue().split("http://127.0.0.1:")[1].split()[0]
        port, _, secret = address.partition("/")
        ports.append(int(port))
        connection = HTTPConnection("127.0.0.1", int(port), timeout=60)
        connection.request("GET", f"/{secret}")
        answers.append(connection.getresponse().status)
        connection.close()
        cluster.stop()
        raise KeyboardInterrupt

    make = partial(Context, clock=Clock(sleep=sleep))
    assert cli.run(["ui", "--no-open"], lambda access: cluster, console, make) == 0
    assert answers == [200]
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection("127.0.0.1", ports[0], timeout=60).connect()


def test_a_port_that_is_taken(server: PageServer, capsys: pytest.CaptureFixture[str]) -> None:
    port = str(server.server_port)
    for taken in (port, "70000"):
        words, console = ["ui", "--port", taken], Console(file=io.StringIO())
        assert cli.run(words, lambda access: RecordedCluster("young"), console) == 1
        assert f"cannot listen on port {taken} of 127.0.0.1" in capsys.readouterr().err


class Browser(webbrowser.BackgroundBrowser):
    def __init__(self) -> None:
        super().__init__("some-browser")
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return True


def test_browsers() -> None:
    browser = Browser()
    assert open_page("http://127.0.0.1:1/s/", lambda: browser)
    assert browser.opened == ["http://127.0.0.1:1/s/"]
    assert not open_page("http://127.0.0.1:1/s/", lambda: webbrowser.GenericBrowser("w3m"))

    def none() -> webbrowser.BaseBrowser:
        raise webbrowser.Error("no browser")

    assert not open_page("http://127.0.0.1:1/s/", none)
