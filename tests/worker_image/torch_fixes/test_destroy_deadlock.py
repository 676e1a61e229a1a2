import _thread
import hashlib
import subprocess
import sys
import threading
import time

import pytest
from elastic_pytorch.agent.settings import REST_SECONDS
from elastic_pytorch.torch_fixes import destroy_deadlock

pytestmark = pytest.mark.torch


def test_waits_for_a_thread_that_runs() -> None:
    data = bytes(2**26)
    until = time.monotonic() + 0.3

    def work() -> None:
        while time.monotonic() < until:
            hashlib.sha256(data)  # without the interpreter's lock

    _thread.start_new_thread(work, ())  # not through threading, as gloo's
    assert destroy_deadlock.wait_for_rest(20)
    assert time.monotonic() >= until


def test_does_not_wait_for_those_that_sleep_nor_for_ever_nor_for_those_of_the_script() -> None:
    stop = threading.Event()
    sleeper = threading.Thread(target=stop.wait)
    sleeper.start()

    def spin() -> None:
        while not stop.is_set():
            pass

    spinner = threading.Thread(target=spin)
    spinner.start()
    assert destroy_deadlock.wait_for_rest(60)
    _thread.start_new_thread(spin, ())
    assert not destroy_deadlock.wait_for_rest(0.2)
    stop.set()
    spinner.join()
    sleeper.join()


def test_leaves_most_of_the_time_that_a_worker_has_to_leave_its_group() -> None:
    assert destroy_deadlock.MAX_SECONDS <= REST_SECONDS / 2


@pytest.mark.process
def test_a_script_with_a_state_ends_in_order_while_threads_of_gloo_drop_their_tensors() -> None:
    code = """if True:
        import sys
        import time
        import elastic_pytorch as elastic
        import torch
        import torch.distributed as dist

        class Slow:
            def __del__(self, sleep=time.sleep):
                sleep(0.3)

        slow = Slow()  # so that the threads run while the interpreter is finalized
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        outlives_its_destruction = dist.group.WORLD  # as in the device mesh of FSDP2
        state = elastic.State(None)
        # A thread gets the interpreter's lock only when this one waits, as on a busy machine.
        sys.setswitchinterval(1000)
        for _ in range(1000):
            dist.all_reduce(torch.ones(1), async_op=True)
        dist.destroy_process_group()
    """
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
