import multiprocessing
import socket
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from elastic_pytorch.torch_fixes.store_connect import PromptTCPStore
from torch.distributed import TCPStore

pytestmark = pytest.mark.torch


def serve(port: int, after: float) -> None:
    time.sleep(after)
    store = TCPStore("127.0.0.1", port, 2, True, wait_for_workers=False)
    store.set("key", "value")
    time.sleep(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


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
        "from elastic_pytorch.torch_fixes import store_connect; store_connect.install(); import sys, torch.distributed;"
        "assert sys.modules['torch.distributed.rendezvous'].TCPStore is store_connect.PromptTCPStore"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_store_that_never_comes_is_torchs_to_tell() -> None:
    with pytest.raises(RuntimeError):
        PromptTCPStore("127.0.0.1", free_port(), 2, False, timedelta(seconds=1))
