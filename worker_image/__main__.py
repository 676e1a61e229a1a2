"""Starts the agent from a folder: `python3 /opt/elastic-pytorch torchrun's options, script, arguments`.

This is how the agent runs in an image that has torch and nothing of ours: the operator has had it copied into the pod. PYTHONPATH is not
used to find it, because setting it in the pod would hide the one that the image may have.
"""

import importlib.util
import os
import runpy
import shutil
import signal
import sys
from pathlib import Path

from elastic_pytorch.signals import end_at_once

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_at_once)  # process 1 would ignore it, for the seconds that importing torch takes
    here = str(Path(__file__).absolute().parent)
    # Nearly every image has a python3. In a few, it is the system's, and torch belongs to one that is called python.
    other = shutil.which("python")
    if importlib.util.find_spec("torch") is None and other is not None and other != sys.executable:
        os.execv(other, [other, here, *sys.argv[1:]])
    # For workers that are started anew, and for their children: this process has the folder on its path already.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    runpy.run_module("elastic_pytorch.agent", run_name="__main__", alter_sys=True)
