"""Asks the operators without end: for the metrics (`scrape`), or with false keys (`tokens`)."""

import base64
import http.client
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tally import Tally

ADDRESSES = Path(os.environ["TALLY"], "operators")  # which the run updates
HOST = "elastic-pytorch-operator.elastic-pytorch-system.svc"
ANSWER_SECONDS = 10.0


class Act(NamedTuple):
    """Requests over a number of connections; each is kept until a refusal."""

    connections: int
    pause_seconds: float
    connect: Callable[[int], http.client.HTTPConnection]
    request: Callable[[int], tuple[str, str, None, Mapping[str, str]]]
    refusals: bool  # whether they count as done


def to_metrics(number: int) -> http.client.HTTPConnection:
    addresses = json.loads(ADDRESSES.read_text())
    return http.client.HTTPConnection(
        addresses[number % len(addresses)], 8781, timeout=ANSWER_SECONDS
    )


def to_leader(_: int) -> http.client.HTTPConnection:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(HOST, 8443, timeout=ANSWER_SECONDS, context=context)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def invented_token(turn: int) -> str:
    """Looks like the cluster's own. Every fourth has the same key id; the others' are new."""
    head = {
        "alg": "RS256" if turn % 2 else "ES256",
        "kid": f"made-up-{turn}" if turn % 4 else "made-up",
    }
    now = int(time.time())
    pod = {"namespace": "default", "pod": {"name": "made-up", "uid": "made-up"}}
    body = {
        "iss": "https://kubernetes.default.svc.cluster.local",
        "aud": ["elastic-pytorch-operator"],
        "exp": now + 3600,
        "iat": now,
    }
    signature = base64.urlsafe_b64encode(os.urandom(256 if turn % 2 else 64)).rstrip(b"=").decode()
    return f"{part(head)}.{part(body | {'kubernetes.io': pod})}.{signature}"


ACTS = {
    "scrape": Act(6, 0.1, to_metrics, lambda _: ("GET", "/metrics", None, {}), False),
    "tokens": Act(
        *(4, 0.05, to_leader),
        lambda turn: (
            "POST",
            "/v1/agent",
            None,
            {"Authorization": f"Bearer {invented_token(turn)}"},
        ),
        True,
    ),
}


def keep_asking(act: Act, number: int, tally: Tally) -> None:
    for turn in count(number, act.connections + 1):
        try:
            with closing(act.connect(number)) as connection:
                refused = False
                while not refused:
                    connection.request(*act.request(turn))
                    answer = connection.getresponse()
                    answer.read()
                    refused = answer.status != http.HTTPStatus.OK
                    if act.refusals or not refused:
                        tally.add()
        except (OSError, http.client.HTTPException, ValueError, ZeroDivisionError):
            pass
        time.sleep(act.pause_seconds)


if __name__ == "__main__":
    chosen, tally = ACTS[sys.argv[1]], Tally(sys.argv[1])
    for number in range(chosen.connections):
        threading.Thread(target=keep_asking, args=(chosen, number, tally)).start()
