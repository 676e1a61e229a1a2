"""Does not stop for SIGTERM."""

import signal
import time

from events import event

signal.signal(signal.SIGTERM, lambda *_: event("ignored"))
event("start")
while True:
    time.sleep(0.1)
