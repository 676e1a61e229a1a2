import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.process

# One worker writes to its stderr faster than the pod's log is read, without end.
FLOOD = """
import subprocess, sys, time
from elastic_pytorch.processes.stderr_tail import StderrTails

tails = StderrTails()
with open(tails.path(0), "w") as flooded, open(tails.path(1), "w") as quiet:
    flood = subprocess.Popen(["yes"], stdout=flooded)
    time.sleep(1)
    quiet.write("last words\\n")
print(repr(tails.text(1)), flush=True)
tails.start_round()
print("next round", flush=True)
flood.kill()
"""


def test_worker_that_writes_without_end_hides_no_other_s_words() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as agent:
        assert agent.stdout is not None
        assert agent.stderr is not None
        os.set_blocking(agent.stdout.fileno(), False)
        said, until = b"", time.monotonic() + 20
        while b"next round" not in said and time.monotonic() < until:
            os.read(agent.stderr.fileno(), 1 << 14)
            time.sleep(0.005)
            said += agent.stdout.read() or b""
        agent.kill()
    assert said.splitlines() == [b"'last words\\n'", b"next round"]
