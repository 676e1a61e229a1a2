"""Goes on from what its predecessor kept in the agent; has it flushed when told to end."""

import os
import signal
import sys
import time

from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.pod.client import PodClient
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.state_format.state_version import StateVersion
from events import event
from snapshots import read_newest

link = PodClient.connect()
found = link.fetch("state")
if found is None:
    snapshot, step = Snapshot.create("state"), 0
    link.keep_memory("state", snapshot.fd)
else:
    snapshot = Snapshot(found)
    version, tree = read_newest(snapshot)
    step = tree["step"]
    event("found", step=step, version=version)
step += 7
snapshot.write(StateVersion(1, step), {"step": step, "blob": bytes(30_000_000)})


def leave(_number: int, _frame: object) -> None:
    link.flush("state", sys.argv[1], 1)
    sys.exit(0)


signal.signal(signal.SIGTERM, leave)
event("kept", step=step, path=os.environ[LOCAL_SOCKET])
time.sleep(600)
