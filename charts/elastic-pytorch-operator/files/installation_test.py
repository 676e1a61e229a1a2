"""Asks the operator what an agent would ask.

Run by `helm test` with the operator's address and two files: a token for it, and the authorities
that have signed its certificate. The last answer proves the most. It needs DNS, the Service, the
network policies, an operator that leads, and its certificate. The operator must also be allowed to
ask the API server whose token this is, to learn that this pod is not a worker of any job.
"""

import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

GIVE_UP_SECONDS = 60.0


def status_of(url: str, token: str = "") -> int:
    """The HTTP status of an answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(url, data=b"", headers=headers)
        with urllib.request.urlopen(
            request, timeout=10, context=ssl.create_default_context(cafile=authorities)
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def check(what: str, expected: int, url: str, token: str = "") -> None:
    """Asks until the answer is the expected one; ends the program if it does not come."""
    until = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            found: int | str = status_of(url, token)
        except OSError as error:
            found = f"no answer: {error}"
        if found == expected:
            print(f"ok: {what}: {found}")
            return
        if time.monotonic() > until:
            sys.exit(f"FAILED: {what}: {found}, and {expected} was expected")
        time.sleep(0.5)


url, token_file, authorities = sys.argv[1:]
check("no agent is heard without a token", 401, f"{url}/v1/agent")
check("nor with one that the API server does not know", 401, f"{url}/v1/agent", "forged")
check(
    "this pod is recognized, and is no worker", 403, f"{url}/v1/agent", Path(token_file).read_text()
)
