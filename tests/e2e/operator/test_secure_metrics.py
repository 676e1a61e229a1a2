"""Metrics over TLS on a cluster: the API server judges tokens, and a Secret has the certificate."""

import base64
import json
from collections.abc import Iterator
from functools import partial

import pytest
from measure.kind_cluster import OPERATOR_NAMESPACE

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.release import NAME, operators, restored, upgrade
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.long]

HOST = f"{NAME}.{OPERATOR_NAMESPACE}.svc"
READER = "metrics-test"

# Reads the metrics of its own pod with each token that it is given, or without one; prints the
# status.
SCRAPE = f"""
import json, socket, ssl, sys
told = json.load(sys.stdin)
context = ssl.create_default_context(cadata=told["authorities"])
for token in told["tokens"]:
    connection = socket.create_connection(("localhost", 8444), 10)
    with context.wrap_socket(connection, server_hostname="{HOST}") as link:
        header = f"Authorization: Bearer {{token}}\\r\\n" if token else ""
        header += "Host: a\\r\\nConnection: close\\r\\n\\r\\n"
        link.sendall(f"GET /metrics HTTP/1.1\\r\\n{{header}}".encode())
        print(link.makefile("rb").readline().split()[1].decode())
"""


@pytest.fixture
def accounts() -> Iterator[tuple[str, str]]:
    names = READER, f"{READER}-other"
    for name in names:
        run_kubectl("-n", OPERATOR_NAMESPACE, "create", "serviceaccount", name)
    try:
        reader, other = (
            run_kubectl("-n", OPERATOR_NAMESPACE, "create", "token", name).stdout.strip()
            for name in names
        )
        yield reader, other
    finally:
        run_kubectl(
            "-n", OPERATOR_NAMESPACE, "delete", "serviceaccount", *names, "--ignore-not-found"
        )


def scrape(pod: str, *tokens: str) -> list[str]:
    """The statuses of scrapes; none if the port is not open yet."""
    secret = run_kubectl(
        "-n", OPERATOR_NAMESPACE, "get", "secret", f"{NAME}-tls", "-o", "jsonpath={.data.ca\\.crt}"
    ).stdout
    told = json.dumps({"authorities": base64.b64decode(secret).decode(), "tokens": tokens})
    command = ["exec", "-i", pod, "--", "python3", "-c", SCRAPE]
    return run_kubectl("-n", OPERATOR_NAMESPACE, *command, input=told, check=False).stdout.split()


def test_scrape_needs_a_token_with_the_right(accounts: tuple[str, str]) -> None:
    reader, other = accounts
    agents = run_kubectl(
        "-n", OPERATOR_NAMESPACE, "create", "token", READER, f"--audience={NAME}"
    ).stdout.strip()
    readers = json.dumps([{"name": READER, "namespace": OPERATOR_NAMESPACE}])
    with restored():
        upgrade("metrics.secure=true", f"metrics.readers={readers}")
        for pod in sorted(operators()):  # the leader, and those on standby
            found = until(
                partial(scrape, pod, "", "invented", agents, other, reader), f"metrics of {pod}"
            )
            assert found == ["401", "401", "401", "403", "200"]
