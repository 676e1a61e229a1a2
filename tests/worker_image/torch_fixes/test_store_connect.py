import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from elastic_pytorch.torch_fixes import store_connect
from elastic_pytorch.torch_fixes.store_connect import PromptTCPStore
from torch.distributed import DistNetworkError, TCPStore

from tests.ports import free_port
from tests.worker_image.warm_python import run_python

pytestmark = pytest.mark.torch


def serve(port: int, after: float) -> None:
    time.sleep(after)
    store = TCPStore("127.0.0.1", port, 2, True, wait_for_workers=False)
    store.set("key", "value")
    time.sleep(30)


def test_a_client_joins_as_soon_as_the_store_is_there() -> None:
    for after in (0.05, 0.1, 0.15):
        port = free_port()
        server = multiprocessing.get_context("fork").Process(target=serve, args=(port, after))
        server.start()
        try:
            store = PromptTCPStore("127.0.0.1", port, 2, False, timedelta(seconds=20))
            assert isinstance(store, TCPStore)
            assert store.get("key") == b"value"
        finally:
            server.kill()
            server.join()


def test_init_process_group_uses_it() -> None:
    program = (
        "from elastic_pytorch.torch_fixes import store_connect; store_connect.install(); "
        "import sys, torch.distributed;"
        "assert sys.modules['torch.distributed.rendezvous'].TCPStore is "
        "store_connect.PromptTCPStore"
    )
    done = run_python(program)
    assert done.returncode == 0, done.stderr


def test_forming_a_group_asks_no_name_server() -> None:
    program = (
        "from elastic_pytorch.torch_fixes import store_connect as found; found.install(); "
        "found.resolver_of_this_thread()[found.SERVERS] = 0; "
        "found.PromptTCPStore('127.0.0.3', 0, 1, True); print('formed')"
    )
    done = run_python(program)
    assert done.stdout == "formed\n", done.stderr
    assert "hostname" not in done.stderr


def test_a_store_that_never_comes_is_torchs_to_tell() -> None:
    with pytest.raises(RuntimeError):
        PromptTCPStore("127.0.0.1", free_port(), 2, False, timedelta(seconds=1))


@pytest.fixture
def group() -> Iterator[None]:
    """A group is formed meanwhile, and left after a moment."""
    store_connect.enter()
    timer = threading.Timer(0.3, store_connect.leave)
    timer.start()
    yield
    timer.join()
    store_connect.enter()


@pytest.mark.usefixtures("group")
def test_leaving_ends_the_wait_for_a_store_that_is_not_served() -> None:
    with pytest.raises(DistNetworkError, match="the group is left before its store at 127"):
        PromptTCPStore("127.0.0.1", free_port(), 2, False, timedelta(minutes=5))


@pytest.mark.usefixtures("group")
def test_leaving_ends_the_wait_for_a_host_that_does_not_answer() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)  # the kernel answers no other connection once one waits to be accepted
        with (
            socket.create_connection(server.getsockname()),
            pytest.raises(DistNetworkError, match="the group is left before"),
        ):
            PromptTCPStore("127.0.0.1", server.getsockname()[1], 2, False, timedelta(minutes=5))


@pytest.mark.parametrize("libuv", [False, True])
@pytest.mark.usefixtures("group")
def test_leaving_ends_the_waits_in_a_store(libuv: bool) -> None:
    """Of the process that serves it, too, for another one that never joins."""
    with pytest.raises(DistNetworkError):
        PromptTCPStore("127.0.0.1", free_port(), 2, True, timedelta(minutes=5), use_libuv=libuv)


def test_left_stores_do_not_end_the_waits_of_the_next_group() -> None:
    store_connect.leave()
    store_connect.enter()
    store = PromptTCPStore("127.0.0.1", free_port(), 1, True)
    store.set("key", "value")
    assert store.get("key") == b"value"
