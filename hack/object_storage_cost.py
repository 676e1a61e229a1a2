"""Measures a checkpoint in object storage against a plain upload of the same bytes, to moto's server on this machine.

.venv/bin/python hack/object_storage_cost.py            # states of 256 MB and 1 GB; needs 4 GiB of memory
.venv/bin/python hack/object_storage_cost.py 256 5      # of 256 MB, five times
"""

import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial

from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import write
from elastic_pytorch.storage.object_streams import PARALLEL, PART_BYTES

MEGABYTES = (256, 1000)
TIMES = 3
CHUNK = bytes(4 << 20)


def start_server() -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return process, found[0]
    raise SystemExit("moto's server does not start")


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size // len(CHUNK)):
        yield CHUNK


def plain_upload(url: str, size: int) -> None:
    """One request, as a client without parts makes it."""
    import obstore  # noqa: PLC0415
    from obstore.store import from_url  # noqa: PLC0415

    store = from_url(url, client_options={"allow_http": True, "timeout": "600s"})
    obstore.put(store, "plain", bytes(size), use_multipart=False)


def upload_in_parts(url: str, size: int) -> None:
    """The same library's upload in the same parts, of bytes that lie in memory: what is left is the frame, the claim and the checksum."""
    import obstore  # noqa: PLC0415
    from obstore.store import from_url  # noqa: PLC0415

    store = from_url(url, client_options={"allow_http": True, "timeout": "600s"})
    obstore.put(store, "parts", bytes(size), use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARALLEL)


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> None:
    sizes = [int(sys.argv[1])] if len(sys.argv) > 1 else MEGABYTES
    times = int(sys.argv[2]) if len(sys.argv) > 2 else TIMES
    server, endpoint = start_server()
    try:
        os.environ |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"))
        for megabytes in sizes:
            size = megabytes * 1_000_000 // len(CHUNK) * len(CHUNK)
            ours, plain, parts = [], [], []
            for step in range(times):
                plain.append(seconds(partial(plain_upload, "s3://bucket/run", size)))
                parts.append(seconds(partial(upload_in_parts, "s3://bucket/run", size)))
                ours.append(seconds(partial(write, "s3://bucket/run", StateVersion(1, step), chunks(size), 1, size)))
            mine, whole, cut = map(statistics.median, (ours, plain, parts))
            print(f"{megabytes} MB: checkpoint {mine:.2f} s, upload in one request {whole:.2f} s, in parts {cut:.2f} s")
    finally:
        server.kill()


if __name__ == "__main__":
    main()
