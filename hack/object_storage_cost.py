"""Measures checkpoints in object storage against plain transfers of the same bytes, to and from moto's server on this machine.

.venv/bin/python hack/object_storage_cost.py            # states of 256 MB and 1 GB, five times each; needs 8 GiB of memory
.venv/bin/python hack/object_storage_cost.py 256 9      # of 256 MB, nine times

A state of one process comes first, then one that two ranks share, with the restore. What is compared takes turns.
"""

import io
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from elastic_pytorch.group.rank_group import cpu_group
from elastic_pytorch.object_url import location_of
from elastic_pytorch.state.sharded.sharded_checkpoint import load_sharded, save_sharded
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import write
from elastic_pytorch.storage.object_streams import PARALLEL, PART_BYTES
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

MEGABYTES = (256, 1000)
TIMES = 5
CHUNK = bytes(4 << 20)
URL = "s3://bucket/run"
RANKS, TENSORS, COLUMNS = 2, 50, 256
PORT = "29417"

Seconds = dict[str, list[float]]


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
            ThreadPoolExecutor(1).submit(process.stderr.read)  # it writes a line for each request
            return process, found[0]
    raise SystemExit("moto's server does not start")


@contextmanager
def local_bucket() -> Iterator[None]:
    """A bucket in a server of this machine, which this process and its children find by the environment."""
    server, endpoint = start_server()
    try:
        os.environ |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"))
        yield
    finally:
        server.kill()


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size // len(CHUNK)):
        yield CHUNK


def store() -> Any:
    from obstore.store import from_url  # noqa: PLC0415

    return from_url(URL, client_options={"allow_http": True, "timeout": "600s"})


def upload(name: str, size: int) -> None:
    """One request, as a client without parts makes it."""
    import obstore  # noqa: PLC0415

    obstore.put(store(), name, bytes(size), use_multipart=False)


def upload_in_parts(name: str, size: int) -> None:
    """The same library's upload in the same parts, of bytes that lie in memory: what is left is the frame, the claim and the checksum."""
    import obstore  # noqa: PLC0415

    obstore.put(store(), name, bytes(size), use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARALLEL)


def upload_as_usual(name: str, size: int) -> None:
    """Amazon's own library with its defaults: eight parts of 8 MiB at a time, as `aws s3 cp` uploads a file."""
    import boto3  # type: ignore[import-untyped]  # noqa: PLC0415

    boto3.client("s3").upload_fileobj(io.BytesIO(bytes(size)), "bucket", name)


def download(name: str) -> None:
    """One request, to its last byte."""
    import obstore  # noqa: PLC0415

    memoryview(obstore.get(store(), name).bytes())


def download_in_ranges(name: str, size: int) -> None:
    """The same library's download in the ranges in which shards are read; moto reads the whole object for each of them."""
    import obstore  # noqa: PLC0415

    source, content = store(), memoryview(bytearray(size))

    def fetch(start: int) -> None:
        end = min(start + PART_BYTES, size)
        content[start:end] = memoryview(obstore.get_range(source, name, start=start, end=end))

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(fetch, range(0, size, PART_BYTES)))


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def seconds_of_all(action: Callable[[], object]) -> float:
    """Of the slowest rank."""
    dist.barrier()
    began = time.perf_counter()
    action()
    dist.barrier()
    return time.perf_counter() - began


def measure_one(size: int, times: int) -> Seconds:
    """A state of one process."""
    found: Seconds = {name: [] for name in ("upload", "as usual", "in parts", "checkpoint")}
    for step in range(times):
        found["upload"].append(seconds(partial(upload, "plain", size)))
        found["as usual"].append(seconds(partial(upload_as_usual, "usual", size)))
        found["in parts"].append(seconds(partial(upload_in_parts, "parts", size)))
        found["checkpoint"].append(seconds(partial(write, URL, StateVersion(1, step), chunks(size), 1, size)))
    return found


def shards(size: int) -> dict[str, DTensor]:
    """Of a model of `size` bytes in all."""
    rows = size // (4 * COLUMNS * TENSORS * RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    return {f"w{number}": DTensor.from_local(torch.rand(rows, COLUMNS), mesh, [Shard(0)]) for number in range(TENSORS)}


def measure_rank(rank: int, size: int, times: int, results: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    group, folder, model = cpu_group(), location_of(f"{URL}/sharded"), shards(size)
    template = shards(size)
    found: Seconds = {name: [] for name in ("upload", "in parts", "checkpoint", "download", "in ranges", "restored")}
    for step in range(1, times + 1):
        tree = {"objects": {"model": model}, "step": step}
        found["upload"].append(seconds_of_all(partial(upload, f"plain-{rank}", size // RANKS)))
        found["in parts"].append(seconds_of_all(partial(upload_in_parts, f"parts-{rank}", size // RANKS)))
        found["checkpoint"].append(seconds_of_all(partial(save_sharded, folder, StateVersion(1, step), tree, 1, group=group)))
        found["download"].append(seconds_of_all(partial(download, f"plain-{rank}")))
        found["in ranges"].append(seconds_of_all(partial(download_in_ranges, f"plain-{rank}", size // RANKS)))
        found["restored"].append(
            seconds_of_all(partial(load_sharded, folder, lambda _: {"objects": {"model": template}}, group=group))
        )
    if rank == 0:
        results.put(found)
    dist.barrier()
    dist.destroy_process_group()


def measure_sharded(size: int, times: int) -> Seconds:
    """A state that ranks share: each uploads and downloads its part by one request, and then as the library does it."""
    spawn = multiprocessing.get_context("spawn")
    results: Any = spawn.SimpleQueue()
    ranks = [spawn.Process(target=measure_rank, args=(rank, size, times, results)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    if any(each.exitcode for each in ranks):
        raise SystemExit("a rank has failed")
    found: Seconds = results.get()
    return found


def show(title: str, found: Seconds, pairs: tuple[tuple[str, str], ...]) -> None:
    print(title)
    for name, values in found.items():
        print(f"  {name:<11} median {statistics.median(values):6.2f} s, worst {max(values):6.2f} s")
    for ours, plain in pairs:
        print(f"  {ours} / {plain}: {statistics.median(found[ours]) / statistics.median(found[plain]):.2f}")


def main() -> None:
    sizes = [int(sys.argv[1])] if len(sys.argv) > 1 else MEGABYTES
    times = int(sys.argv[2]) if len(sys.argv) > 2 else TIMES
    with local_bucket():
        for megabytes in sizes:
            size = megabytes * 1_000_000 // len(CHUNK) * len(CHUNK)
            alone = measure_one(size, times)
            plain = ("upload", "as usual", "in parts")
            show(f"{megabytes} MB of one process, {times} times", alone, tuple(("checkpoint", name) for name in plain))
            together = measure_sharded(size, times)
            show(
                f"{megabytes} MB of {RANKS} ranks, {times} times",
                together,
                (("checkpoint", "upload"), ("checkpoint", "in parts"), ("restored", "download"), ("restored", "in ranges")),
            )


if __name__ == "__main__":
    main()
