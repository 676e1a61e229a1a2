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
    ("method", "path", "code"),
    [
        *(
            ("GET", path, 403)
            for path in (
                *("/", "/wrong/", "/s3cre/", "/s3cret%20/", "/p\u00e4ssword/", "/page.js?s3cret"),
                *(f"{OWN}/s3cret/", "s3cret/", "http://[", ""),
            )
        ),
        ("POST", "/", 403),
        ("POST", "/s3cret/", 405),
        ("HEAD", "/s3cret/", 405),
        ("DELETE", "/s3cret/jobs/team/lm", 405),
    ],
)
def test_other_places_and_methods_are_refused(method: str, path: str, code: int) -> None:
    check_refusal(check_request(method, path, [HOST], [], secret="s3cret", port=8001), code)


@pytest.mark.parametrize(
    ("hosts", "origins"),
    [
        ([], []),
        ([HOST, "evil.example"], []),
        (["evil.example:8001"], []),
        (["127.0.0.1"], []),
        (["127.0.0.1:8002"], []),
        ([HOST], ["http://evil.example"]),
        ([HOST], ["null"]),
        ([HOST], ["https://127.0.0.1:8001"]),
        ([HOST], [OWN, "http://evil.example"]),
    ],
)
def test_other_hosts_and_pages_are_refused(hosts: list[str], origins: list[str]) -> None:
    check_refusal(check_request("GET", "/s3cret/", hosts, origins, secret="s3cret", port=8001), 403)


def check_refusal(answer: Target | Refusal, code: int) -> None:
    assert isinstance(answer, Refusal)
    assert answer.code == code
    assert "s3cret" not in answer.message


@pytest.mark.parametrize("name", ["a", "char-lm", "team.a-1", "9" * 253])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a%2fb", "A", "-a", "a-", "a b", "a\n", "ä", "٣", "9" * 254]
)
def test_what_is_no_name(name: str) -> None:
    assert not is_name(name)
