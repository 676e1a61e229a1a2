"""Serves a bucket by S3's protocol with moto; misbehaves on demand, and notes what it stores.

    object_server.py FOLDER PORT URL

FOLDER/bucket.fault demands `refuse-requests` or `cut-connections`. FOLDER/bucket.objects gets a
line for each stored checkpoint, and every few seconds one for the newest of URL that can be read,
with its checksum.
"""

import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_file import load_newest
from elastic_pytorch.storage.checkpoint_format import version_of
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client

READ_SECONDS = 5.0
SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)
READER = "localhost"  # the host of requests that no fault affects

folder, port, url = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
fault_file, notes = folder / "bucket.fault", (folder / "bucket.objects").open("a", buffering=1)
app = DomainDispatcherApplication(create_backend_app)


class Handler(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        pass


def note(what: str, at: float, version: tuple[int, int] | None) -> None:
    notes.write(json.dumps({"what": what, "at": at, "version": version}) + "\n")


def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    fault = ""
    if fault_file.exists() and not environ["HTTP_HOST"].startswith(READER):
        fault = fault_file.read_text().strip()
    if fault == "refuse-requests":
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(SLOW_DOWN)))]
        start_response("503 Slow Down", headers)
        return [SLOW_DOWN]
    if fault == "cut-connections" and random.random() < 0.5:
        cut(environ)
    statuses = []

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        statuses.append(status)
        return start_response(status, headers, *more)

    body = b"".join(app(environ, start))
    version = version_of(environ["PATH_INFO"].rpartition("/")[2])
    stored = environ["REQUEST_METHOD"] == "PUT" and statuses[-1].startswith("200")
    if stored and version is not None:
        note("stored", time.time(), version)
    if fault:  # after the act, so that the client does not know of it
        cut(environ)
    return [body]


def cut(environ: dict[str, Any]) -> NoReturn:
    # After an exception alone, the connection stays open.
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def read_through() -> None:
    while True:
        began = time.time()
        with suppress(OSError):
            found = load_newest(url, StateVersion(0, 0))
            note("read", began, found.version if found else None)
        time.sleep(READ_SECONDS)


Client(app).put(f"/{url.split('/')[2]}")
server = make_server("0.0.0.0", port, serve, threaded=True, request_handler=Handler)
os.environ["AWS_ENDPOINT_URL"] = f"http://{READER}:{port}"
threading.Thread(target=read_through, daemon=True).start()
server.serve_forever()
