import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BEGIN = """
import os
from elastic_pytorch.pod import preparation
os.environ["ELASTIC_PYTORCH_PREPARING"] = "1"
preparation.begin()  # without an agent, so that nothing has to be waited for
{script}
print("prepares" if preparation.prepares() else "has joined")
"""


def said(script: str, folder: Path | None = None) -> list[str]:
    """The lines that a process writes which prepares, has no agent, and runs some lines."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
    }
    run = subprocess.run(
        [sys.executable, "-c", BEGIN.format(script=script)],
        check=True,
        timeout=600,
        env=environment | {"LOCAL_RANK": "0"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    return [line for line in run.stdout.splitlines() if line in ("prepares", "has joined")]


def after(script: str) -> str:
    return said(script)[-1]


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs {module}")


@pytest.mark.parametrize(
    "script",
    [
        "os.environ.get('RANK')",
        "'WORLD_SIZE' in os.environ",
        "os.environ.get('ELASTIC_PYTORCH_UNIT')",
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
        pytest.param("import tqdm", marks=needs("tqdm")),
        pytest.param(
            "from torch._inductor.utils import python_subprocess_env; python_subprocess_env()",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "import lightning; lightning.seed_everything(1)",
            marks=[needs("lightning"), pytest.mark.long],
        ),
    ],
)
def test_what_lists_the_environment_for_itself_or_for_a_compiler_does_not(script: str) -> None:
    assert after(script) == "prepares"


LIGHTNING = (
    "import lightning; {0}; "
    "lightning.Trainer(accelerator='cpu', logger=False, enable_checkpointing=False); {0}"
)
WITHOUT_GROUP = (
    "{0}; {1}\ntry: {2}\nexcept ValueError: pass  # there is none, as there is no agent\n{1}"
)
TRANSFORMERS = WITHOUT_GROUP.format(
    "import transformers", "{0}", "transformers.TrainingArguments('out', use_cpu=True)"
)
ACCELERATE = WITHOUT_GROUP.format("import accelerate", "{0}", "accelerate.Accelerator(cpu=True)")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(LIGHTNING, marks=needs("lightning")),
        pytest.param(TRANSFORMERS, marks=[needs("transformers"), needs("accelerate")]),
        pytest.param(ACCELERATE, marks=needs("accelerate")),
    ],
)
@pytest.mark.long
def test_frameworks_join_with_their_central_object(script: str, tmp_path: Path) -> None:
    told = "print('prepares' if preparation.prepares() else 'has joined')"
    assert said(script.format(told), tmp_path)[:2] == ["prepares", "has joined"]
