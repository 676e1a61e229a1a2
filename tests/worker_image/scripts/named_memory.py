"""Creates shared memory by a name, and leaves it behind; a forked helper has it open, too."""

import os
import sys
import time
from multiprocessing.shared_memory import SharedMemory

from events import event

memory = SharedMemory(sys.argv[1] + os.environ["WORKER"], create=True, size=4096)
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
event("created")
time.sleep(600)
