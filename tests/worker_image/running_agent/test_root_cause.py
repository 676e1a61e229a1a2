"""A failure says what a person needs, without `@record`, however the worker was started."""

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker_image.agents import Agents
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process


# What the script does, the exit code, and what the message and the traceback hold.
CASES: dict[str, tuple[str, int, str, str]] = {
    "an exception": (
        "def train():\n    raise ValueError('boom at step 5')\ntrain()",
        1,
        r"^ValueError: boom at step 5$",
        r"in train",
    ),
    "an import": (
        "import no_such_module",
        1,
        r"^ModuleNotFoundError: No module named 'no_such_module'$",
        r"line 1",
    ),
    "a syntax error": (
        "x = 5\nif x\n    pass",
        1,
        r"^SyntaxError: expected ':'",
        r"script\.py\"?, line 2",
    ),
    "an exit with a text": (
        "import sys; sys.exit('no data in /data')",
        1,
        r"no data in /data$",
        "",
    ),
    "an exit with a code": (
        "import sys; print('no licence', file=sys.stderr); sys.exit(3)",
        3,
        r"exited with code 3; its last line on stderr: no licence$",
        "no licence",
    ),
    "a sudden exit": (
        "import os, sys; print('cannot go on', file=sys.stderr); os._exit(3)",
        3,
        r"^exited with code 3; its last line on stderr: cannot go on$",
        "cannot go on",
    ),
    "a crash": (
        "import ctypes\ndef crash_here():\n    ctypes.string_at(0)\ncrash_here()",
        -11,
        r"^killed by SIGSEGV in \S+ \(.*\)$",
        r"Segmentation fault[\s\S]*in crash_here",
    ),
    "an abort": (
        "import os, sys\nprint('terminate called: what(): bad', file=sys.stderr)\ndef f():\n"
        "    os.abort()\nf()",
        -6,
        r"^killed by SIGABRT in f \(.*script\.py, line 4\)\nterminate called: what\(\): bad$",
        r"Aborted[\s\S]*in f",
    ),
    "torch's own prefix": (
        "import torch.distributed as d\nd.init_process_group('gloo')\nraise KeyError('missing')",
        1,
        r"^KeyError: 'missing'$",
        r"line 3",
    ),
    "no script": (
        "",
        2,
        r"can't open file '.*script\.py': \[Errno 2\] No such file or directory$",
        "",
    ),
    "an exception after one that was handled": (
        """
        import traceback
        try:
            {}["handled"]
        except KeyError:
            traceback.print_exc()
        import sys
        sys.exit(4)
        """,
        4,
        r"^exited with code 4; ",
        "handled",
    ),
}


SHOWN_BY_MAKE_TEST = ("an exception", "an exit with a text", "a crash")


@pytest.mark.parametrize(
    ("start_method", "cases"),
    [
        pytest.param("forkserver", SHOWN_BY_MAKE_TEST, id="forkserver"),
        pytest.param("forkserver", CASES, id="all, forkserver", marks=pytest.mark.long),
        pytest.param("spawn", CASES, id="all, spawn", marks=pytest.mark.long),
    ],
)
def test_failure_says_what_to_do_something_about(
    operator: ScriptedOperator,
    agents: Agents,
    tmp_path: Path,
    start_method: str,
    cases: Iterable[str],
) -> None:
    script = tmp_path / "script.py"
    agent = agents("w0", f"--start-method={start_method}", script)
    operator.wait_for("ready", "w0")
    told: dict[str, Any] = {"message": ""}
    for case in cases:
        source, exit_code, message, traceback = CASES[case]
        script.unlink(missing_ok=True)
        if source:
            script.write_text(textwrap.dedent(source))
        number = operator.declare("w0")
        operator.wait_for("failed", "w0", number=number)
        heard = operator.last("w0")
        told = heard.failure
        assert told["exitCode"] == exit_code, (case, told)
        assert re.search(message, told["message"]), (case, told)
        assert re.search(traceback, told["traceback"]), (case, told)
        if exit_code == 1 and "exit" not in source:
            assert told["exception"] == told["message"].partition(":")[0]
        until(
            lambda traceback=told["traceback"]: (
                traceback.strip() in agent.text().replace("[rank0]: ", "")
            ),
            "the log of it all",
        )
    operator.end("failed")
    assert agent.wait() == 1
    assert agent.termination_log.read_text().startswith(told["message"])
