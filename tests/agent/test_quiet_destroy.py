import hashlib
import threading
import time

import pytest
import torch
from elastic_pytorch import quiet_destroy


def test_waits_for_a_thread_that_runs() -> None:
    data = bytes(2**26)
    until = time.monotonic() + 0.3

    def work() -> None:
        while time.monotonic() < until:
            hashlib.sha256(data)  # without the interpreter's lock

    thread = threading.Thread(target=work)
    thread.start()
    assert quiet_destroy.wait_for_rest(20)
    assert time.monotonic() >= until
    thread.join()


def test_does_not_wait_for_those_that_sleep_nor_for_ever() -> None:
    stop = threading.Event()
    sleeper = threading.Thread(target=stop.wait)
    sleeper.start()
    assert quiet_destroy.wait_for_rest(20)

    def spin() -> None:
        while not stop.is_set():
            pass

    spinner = threading.Thread(target=spin)
    spinner.start()
    assert not quiet_destroy.wait_for_rest(0.2)
    stop.set()
    spinner.join()
    sleeper.join()


@pytest.mark.skipif(torch.torch_version.TorchVersion(torch.__version__) >= quiet_destroy.FIXED_IN, reason="torch has mended it")
def test_install() -> None:
    quiet_destroy.install()
    assert hasattr(torch.distributed.destroy_process_group, "__wrapped__")
