"""Which requests the server answers: only the page's own. Pure.

The server listens on 127.0.0.1 only, but every program and every web page on the machine can reach
it. Three things keep them out: a secret in the path, the header Host (a name that an attacker
points at 127.0.0.1 is another host), and the header Origin.
"""

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

METHOD = "GET"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {  # of every answer
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address has the secret
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    code: HTTPStatus
    message: str


@dataclass(frozen=True, slots=True)
class Target:
    # The decoded path below the secret: `("jobs", "team", "lm")`; the page itself is `("",)`.
    parts: tuple[str, ...]
    query: str = ""  # undecoded


def check_request(
    method: str, path: str, hosts: Sequence[str], origins: Sequence[str], *, secret: str, port: int
) -> Target | Refusal:
    """The target of a request, or its refusal.

    `path` has the query; `hosts` and `origins` are the values of these headers. Browsers omit
    Origin when they open the page. `secret` is the first part of every path.
    """
    own = [f"{name}:{port}" for name in ("127.0.0.1", "localhost")]
    if len(hosts) != 1 or hosts[0].lower() not in own:
        return Refusal(HTTPStatus.FORBIDDEN, f"this server is {own[0]} only")
    if any(origin.lower() not in [f"http://{host}" for host in own] for origin in origins):
        return Refusal(HTTPStatus.FORBIDDEN, "another page has asked")
    place, _, query = path.partition("?")
    first, *rest = [unquote(part) for part in place.removeprefix("/").split("/")]
    if not path.startswith("/") or not hmac.compare_digest(first.encode(), secret.encode()):
        message = "use the whole address that `kubectl epj ui` has printed"
        return Refusal(HTTPStatus.FORBIDDEN, message)
    if method != METHOD:
        message = "this page changes nothing: it answers GET only"
        return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, message)
    return Target(tuple(rest), query)


def is_name(text: str) -> bool:
    """Whether a text can name a job or a namespace, and be part of an API server's address."""
    return _NAME.fullmatch(text) is not None
