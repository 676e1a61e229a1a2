"""Which requests the page's server answers."""

import pytest
from elastic_pytorch_client.page.requests import Refusal, Target, check_request, is_name

HOST = "127.0.0.1:8001"
OWN = "http://127.0.0.1:8001"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/s3cret/", Target(("",))),
        ("/s3cret/page.js?x=1", Target(("page.js",), "x=1")),
        ("/s3cret/jobs/team/lm", Target(("jobs", "team", "lm"))),
        ("/s3cret/jobs/team/a%2Fb%2e%2e", Target(("jobs", "team", "a/b.."))),
        ("/s3cret/logs/team/lm?index=0", Target(("logs", "team", "lm"), "index=0")),
    ],
)
def test_what_is_asked_for(path: str, target: Target) -> None:
    assert check_request("GET", path, [HOST], [], secret="s3cret", port=8001) == target


@pytest.mark.parametrize("hosts", [[HOST], ["localhost:8001"], ["LOCALHOST:8001"]])
@pytest.mark.parametrize("origins", [[], [OWN], ["http://localhost:8001"]])
def test_its_own_page_is_answered(hosts: list[str], origins: list[str]) -> None:
    assert isinstance(
        check_request("GET", "/s3cret/", hosts, origins, secret="s3cret", port=8001), Target
    )


@pytest.mark.parametrize(
    ("method", "path", "hosts", "origins", "code"),
    [
        ("GET", "/", [HOST], [], 403),
        ("GET", "/wrong/", [HOST], [], 403),
        ("GET", "/s3cre/", [HOST], [], 403),
        ("GET", "/s3cret%20/", [HOST], [], 403),
        ("GET", "/pässword/", [HOST], [], 403),
        ("GET", "/page.js?s3cret", [HOST], [], 403),
        ("GET", f"{OWN}/s3cret/", [HOST], [], 403),
        ("GET", "s3cret/", [HOST], [], 403),
        ("GET", "http://[", [HOST], [], 403),
        ("GET", "", [HOST], [], 403),
        ("GET", "/s3cret/", [], [], 403),
        ("GET", "/s3cret/", [HOST, "evil.example"], [], 403),
        ("GET", "/s3cret/", ["evil.example:8001"], [], 403),
        ("GET", "/s3cret/", ["127.0.0.1"], [], 403),
        ("GET", "/s3cret/", ["127.0.0.1:8002"], [], 403),
        ("GET", "/s3cret/", [HOST], ["http://evil.example"], 403),
        ("GET", "/s3cret/", [HOST], ["null"], 403),
        ("GET", "/s3cret/", [HOST], ["https://127.0.0.1:8001"], 403),
        ("GET", "/s3cret/", [HOST], [OWN, "http://evil.example"], 403),
        ("POST", "/", [HOST], [], 403),
        ("POST", "/s3cret/", [HOST], [], 405),
        ("HEAD", "/s3cret/", [HOST], [], 405),
        ("OPTIONS", "/s3cret/", [HOST], [], 405),
        ("DELETE", "/s3cret/jobs/team/lm", [HOST], [], 405),
    ],
)
def test_what_is_refused(
    method: str, path: str, hosts: list[str], origins: list[str], code: int
) -> None:
    refused = check_request(method, path, hosts, origins, secret="s3cret", port=8001)
    assert isinstance(refused, Refusal)
    assert refused.code == code
    assert "s3cret" not in refused.message


@pytest.mark.parametrize("name", ["a", "char-lm", "team.a-1", "9" * 253])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a%2fb", "A", "-a", "a-", "a b", "a\n", "ä", "٣", "9" * 254]
)
def test_what_is_no_name(name: str) -> None:
    assert not is_name(name)
