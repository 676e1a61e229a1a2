"""Undocumented names of torch: the list has each that is used, and the agent looks for each."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import elastic_pytorch
import pytest
import torch
from elastic_pytorch.agent.elastic_agent import ElasticAgent
from elastic_pytorch.agent.torch_names import AGENT, LIBRARY, missing
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from tests.worker_image.agents import SCRIPTS, Agents, python_path
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.torch

PACKAGE = Path(elastic_pytorch.__file__).parent
LISTED = {
    name.rpartition(".")[2] for names in (*AGENT.values(), *LIBRARY.values()) for name in names
}

PYTHONS_OWN = {
    "_Environ",  # of os.environ
    "_config",  # multiprocessing's, of a process
    "_forkserver_address",
    "_getframe",
    "_current_frames",
    "_exit",
    "_exit_function",
    "_fd",
    "_forkserver",
    "_parent_process",
    "_pid",
    "_resource_tracker",
    "_run_exitfuncs",
    "_run_module_as_main",
    "_shutdown",
    "_actions",  # argparse's
    "_replace",  # a named tuple's
}
# Where it is missing, nothing is lost but what it is there for.
HARMLESS = {
    "_C": "always there",
    "_get_fq_hostname": "only set: it spares a look-up",
    "_last_lr": "of torch's schedulers, as their documentation says of get_last_lr",
    "_metadata": "asked for with getattr first",
    "_batches_that_stepped": "Lightning's, which its own matrix of releases covers",
    "_execution_engine": "used with care: without it no rank's work is measured",
    "_utils": "a module, of which the list has what is used",
    "_data_fetcher": "Lightning's",
    "_data_source": "Lightning's",
    **dict.fromkeys(
        (
            "_globalstep_last_logged",
            "_initial_global_step",
            "_total_loss_scalar",
            "_tr_loss",
            "_train_batch_size",
        ),
        "of the Trainer of transformers",
    ),
}


def private_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from (alias.name for alias in node.names)
            yield from (node.module or "").split(".")


def own_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == "self"
        ):
            yield node.attr


def test_every_private_name_of_torch_is_listed() -> None:
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    own = {name for tree in trees for name in own_names(tree)}
    used = {
        name
        for tree in trees
        for name in private_names(tree)
        if name.startswith("_") and not name.startswith("__")
    }
    assert used - own - PYTHONS_OWN - HARMLESS.keys() <= LISTED


def test_every_hook_of_torchs_agent_is_listed() -> None:
    hooks = {
        name
        for name, value in vars(ElasticAgent).items()
        if inspect.isfunction(value) and not name.startswith("__")
    }
    assert {name for name in hooks if hasattr(LocalElasticAgent, name)} <= LISTED


def test_this_torch_has_them_all() -> None:
    assert missing(AGENT) == missing(LIBRARY) == []


def test_what_is_missing_is_named_with_its_module() -> None:
    names = {
        "torch.distributed.elastic.multiprocessing.api": (
            "MultiprocessContext._pc",
            "MultiprocessContext._pod",
            "PContext.x.y",
            "_no",
        ),
        "torch.nothing.here": ("anything",),
        "torch": ("_foreach_copy_", "Tensor.add", "Tensor._not"),
    }
    api = "torch.distributed.elastic.multiprocessing.api"
    assert missing(names) == [
        f"{api}.MultiprocessContext._pod",
        f"{api}.PContext.x.y",
        f"{api}._no",
        "torch.nothing.here",
        "torch.Tensor._not",
    ]


@pytest.mark.process
def test_agent_refuses_a_torch_that_lacks_one(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from torch.distributed.elastic.agent.server import api\n"
        "del api.SimpleElasticAgent._exit_barrier\n"
    )
    agent = agents("w0", SCRIPTS / "train.py", PYTHONPATH=python_path(tmp_path))
    assert agent.wait() == 2
    module = "torch.distributed.elastic.agent.server.local_elastic_agent"
    assert agent.termination_log.read_text() == (
        "the agent runs with torch 2.4 to 2.15: "
        f"torch {torch.__version__} lacks {module}.LocalElasticAgent._exit_barrier"
    )
