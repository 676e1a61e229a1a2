"""Starts the agent from a folder: `python3 /opt/elastic-pytorch [torchrun's options] script args…`.

The operator copies the agent into a pod whose image has torch but not this package. PYTHONPATH
would hide the image's own.
"""

import contextlib
import importlib.util
import os
import runpy
import shutil
import sys
from pathlib import Path

OLDEST_PYTHON = (3, 10)
CANNOT_RUN = 2


def refuse_old_python() -> None:
    """Ends the process with a termination message if its Python is too old."""
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return
    oldest, here = (
        ".".join(map(str, numbers)) for numbers in (OLDEST_PYTHON, sys.version_info[:3])
    )
    message = (
        f"elastic-pytorch needs Python {oldest} or newer in the image: "
        f"{sys.executable} is Python {here}"
    )
    print(message, file=sys.stderr)
    path = os.environ.get("ELASTIC_PYTORCH_TERMINATION_LOG", "/dev/termination-log")
    with contextlib.suppress(OSError), open(path, "r+") as file:  # noqa: PTH123 - as elastic_pytorch.failures.failure does
        file.write(message)
    sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    here = str(Path(__file__).absolute().parent)
    # Nearly every image has a python3. In a few it is the system's, and torch belongs to an
    # interpreter called python.
    other = shutil.which("python")
    if importlib.util.find_spec("torch") is None and other is not None and other != sys.executable:
        os.execv(other, [other, here, *sys.argv[1:]])
    refuse_old_python()
    # For workers that start in a new interpreter, and for their children.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    runpy.run_module("elastic_pytorch.agent", run_name="__main__", alter_sys=True)
