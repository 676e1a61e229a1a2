"""Starts a helper, as data loaders do, which finishes its batch before the script saves.

With `--own-session`, the helper leaves the session of the script, and has a process of its own.
"""

import signal
import subprocess
import sys
import time

from events import event

told: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
own = "--own-session" in sys.argv
command = ["sh", "-c", "sleep 600 & wait"] if own else ["sleep", "600"]
helper = subprocess.Popen(command, start_new_session=own)  # without a handler, as of a forkserver
event("start", helper=helper.pid)
while not told:
    time.sleep(0.02)
time.sleep(0.5)  # for a signal to arrive that was sent to both
event("saved", helper_lives=helper.poll() is None)
