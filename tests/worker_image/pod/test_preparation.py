"""What a script may do before it has a group, and what has it wait for one."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

BEGIN = """
import os
from elastic_pytorch.pod import preparation
os.environ["ELASTIC_PYTORCH_PREPARING"] = "1"
preparation.begin()  # without an agent, so that nothing has to be waited for
{script}
print("prepares" if preparation.is_preparing() else "has joined")
"""


def after(script: str) -> str:
    """Whether a process still prepares after some lines, in words."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    run = subprocess.run(
        [sys.executable, "-c", BEGIN.format(script=script)],
        check=True,
        timeout=600,
        env=environment | {"LOCAL_RANK": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    return run.stdout.strip().splitlines()[-1]


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs {module}")


@pytest.mark.parametrize(
    "script",
    [
        "os.environ.get('RANK')",
        "'WORLD_SIZE' in os.environ",
        "os.environ['MASTER_ADDR'] = '127.0.0.1'",
        "list(os.environ)",
        "os.environ.copy()",
        "{**os.environ}",
    ],
)
def test_use_of_the_group_joins_it(script: str) -> None:
    assert after(script) == "has joined"


@pytest.mark.parametrize(
    "script",
    [
        "os.environ.get('HOME'); os.environ['X'] = os.environ.get('LOCAL_RANK')",
        "from ctypes.util import find_library; find_library('no-such-library')",
        "import platform; platform.architecture()",
        pytest.param("import fsspec", marks=needs("fsspec")),
        pytest.param("import networkx", marks=needs("networkx")),
        pytest.param(
            "from torch._inductor.utils import python_subprocess_env; python_subprocess_env()", marks=pytest.mark.torch
        ),
        pytest.param("import lightning; lightning.seed_everything(1)", marks=[needs("lightning"), pytest.mark.long]),
    ],
)
def test_what_lists_the_environment_for_itself_or_for_a_compiler_does_not(script: str) -> None:
    assert after(script) == "prepares"
