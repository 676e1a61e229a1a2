"""`kubectl epj ui` as a process of its own, against an API server."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.plugin.api_server import ApiServer
from tests.plugin.recorded_cluster import recorded

pytestmark = pytest.mark.process

JOBS = "/apis/elasticpytorch.dev/v1alpha1/namespaces/team/elasticpytorchjobs"
CHANGES = 2000  # minutes of them


def answer(step: int) -> tuple[int, bytes | list[bytes]]:
    """The jobs, at a step: as a list, and for a watch an end at once."""
    job = recorded("young")["job"]
    job["status"]["progress"]["step"] = step
    return 200, json.dumps({"type": "ERROR", "items": [job]}).encode()


@contextmanager
def stream(host: str, secret: str) -> Iterator[Iterator[Any]]:
    connection = HTTPConnection(host, timeout=60)
    connection.request("GET", f"/{secret}/events")
    response = connection.getresponse()
    yield (
        json.loads(line.removeprefix(b"data: ")) for line in response if line.startswith(b"data: ")
    )
    response.close()
    connection.close()


def test_it_lives_on_when_pages_are_closed_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with ApiServer() as api:
        api.answers["GET", JOBS] = [answer(step) for step in range(CHANGES)]
        threading.Thread(target=api.serve_forever, args=(0.02,), daemon=True).start()
        (tmp_path / "config").write_text(yaml.safe_dump(api.kubeconfig))
        command = [sys.executable, "-m", "elastic_pytorch_client", "ui", "--no-open"]
        command.append(f"--kubeconfig={tmp_path / 'config'}")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().partition("http://")[2].strip()
                host, _, secret = address.rstrip("/").partition("/")
                with stream(host, secret) as messages:
                    assert next(messages)["rows"][0]["name"] == "char-lm"
                # What is closed is written to until the server notices.
                with stream(host, secret) as messages:
                    steps = [next(messages)["rows"][0]["step"] for _ in range(6)]
                assert steps == sorted(set(steps))
                assert process.poll() is None
                process.send_signal(signal.SIGINT)
                assert (process.wait(60), process.communicate()[1]) == (0, "")
            finally:
                process.kill()
        api.shutdown()
