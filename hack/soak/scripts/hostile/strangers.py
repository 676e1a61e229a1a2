"""Shows the operator tokens that look like the cluster's own, signed by keys with invented names."""

import base64
import http.client
import json
import os
import ssl
import time
from contextlib import closing

from tally import Tally, in_threads

CONNECTIONS = 4
HOST, PORT = "elastic-pytorch-operator.elastic-pytorch-system.svc", 8443
ANSWER_SECONDS = 10.0
PAUSE_SECONDS = 0.05


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def invented_token(turn: int) -> str:
    """Every fourth has the same name for its key; the names of the others are new."""
    head = {"alg": "RS256" if turn % 2 else "ES256", "kid": f"made-up-{turn}" if turn % 4 else "made-up"}
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


def show(number: int, tally: Tally) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    turn = number
    while True:
        turn += CONNECTIONS + 1
        try:
            with closing(http.client.HTTPSConnection(HOST, PORT, timeout=ANSWER_SECONDS, context=context)) as connection:
                connection.request("POST", "/v1/agent", headers={"Authorization": f"Bearer {invented_token(turn)}"})
                connection.getresponse().read()
            tally.add()
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    in_threads("tokens", CONNECTIONS, show)
