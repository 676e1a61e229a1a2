"""Starts a helper process, as data loaders do, and needs it after SIGTERM: it finishes its batch before it saves."""

import signal
import subprocess
import time

from events import event

told: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
helper = subprocess.Popen(["sleep", "600"])  # without a handler, as of a forkserver
event("start", helper=helper.pid)
while not told:
    time.sleep(0.02)
time.sleep(0.5)  # for a signal to arrive that was sent to both
event("saved", helper_lives=helper.poll() is None)
