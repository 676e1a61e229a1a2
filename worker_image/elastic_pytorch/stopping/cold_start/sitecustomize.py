"""A worker that does not start warm imports this before its script, in any Python.

It then answers requests for its stacks (stopping/stacks.py) and its stop (stopping/answers.py), and
reports what it raised (failures/error_file.py).
"""

import faulthandler
import importlib
import os
import signal
import sys

try:
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGRTMIN + 10, file=2, all_threads=True, chain=False)
except Exception:  # it is optional
    pass

here = __file__.rpartition(os.sep)[0]
package = os.path.dirname(os.path.dirname(here))  # noqa: PTH120
for name, call in (
    ("stopping/answers.py", "answer_stops()"),
    ("failures/error_file.py", "record_exceptions()"),
):
    try:
        path = os.path.join(package, name)  # noqa: PTH118
        with open(path, encoding="utf-8") as source:  # noqa: PTH123
            exec(compile(source.read() + "\n" + call + "\n", path, "exec"), {"__name__": call[:-2]})
    except Exception:
        pass

sys.path[:] = [path for path in sys.path if path != here]
rest = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if rest[0] == here:
    # The script and its children get the original variable.
    if rest[1:]:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest[1:])
    else:
        del os.environ["PYTHONPATH"]

this = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")  # the image's own
except ImportError:
    sys.modules["sitecustomize"] = this
