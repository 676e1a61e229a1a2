"""The reference of the library's and the client's public names, from their docstrings alone."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from docstrings import Docstring, read, sentence

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"elastic_pytorch": ROOT / "worker_image", "elastic_pytorch_client": ROOT / "plugin"}
LIBRARY, CLIENT = "elastic_pytorch", "elastic_pytorch_client"
MAX_SIGNATURE = 100  # characters in a line
MISTAKES = ("TypeError", "ValueError", "RuntimeError")
QUOTED_CLASS = re.compile(r"'([A-Z]\w*)'")

HEAD = """# Python API

Look up here a public name of the training library (`elastic_pytorch`, in examples `elastic`) or of
the client (`elastic_pytorch_client`). [training-library.md](../use/training-library.md) and
[plugin.md](../use/plugin.md#from-python) explain how to use them. A call that does not fit raises a
TypeError, ValueError or RuntimeError, whose message says why. `make docs` writes this page from the
docstrings.
"""


class Subject(NamedTuple):
    title: str
    module: str
    names: tuple[str, ...]


STATE_OPTIONS, LIGHTNING = f"{LIBRARY}.state.options", f"{LIBRARY}.lightning"
TRAINING, SHARDED = f"{LIBRARY}.training", f"{LIBRARY}.state.sharded.sharded_state"
ERRORS = (
    *("EpjError", "JobFailed", "NoJobKind", "NoSuchJob"),
    *("NotAllowed", "Refused", "TimedOut", "Unreachable"),
)
SUBJECTS = (
    Subject("The training loop", LIBRARY, ("epochs", "steps", "scale_learning_rate")),
    Subject("A step of the loop", f"{TRAINING}.step", ("Step",)),
    Subject("A micro-batch in a loop of your own", f"{TRAINING}.micro_batches", ("Part",)),
    Subject("The work of a rank in a loop of your own", f"{TRAINING}.work_timer", ("WorkTimer",)),
    Subject("Data", LIBRARY, ("ElasticSampler", "ElasticStream")),
    Subject("The loader of a stream", f"{TRAINING}.streams.loader", ("StreamLoader",)),
    Subject("What is saved", LIBRARY, ("State", "Trained", "PerRank", "load")),
    Subject("The options of a State", STATE_OPTIONS, ("Options",)),
    Subject("What is saved of a sharded model", SHARDED, ("ShardedState",)),
    Subject("The process group", LIBRARY, ("in_process", "unit_mesh")),
    Subject("Reports", LIBRARY, ("report",)),
    Subject("Lightning", LIGHTNING, ("options", "ElasticCallback", "ElasticEnvironment")),
    Subject("Transformers", f"{LIBRARY}.transformers", ("ElasticTrainer", "ElasticTrainerMixin")),
    Subject("DeepSpeed", f"{LIBRARY}.deepspeed", ("DeepSpeedState",)),
    Subject("Jobs", CLIENT, ("Job", "JobView", "Line")),
    Subject("Manifests", f"{CLIENT}.manifest", ("build_manifest",)),
    Subject("Access to a cluster", CLIENT, ("Access", "KubernetesCluster", "Cluster")),
    Subject("Errors", CLIENT, ERRORS),
)

OF_A_CLUSTER = {
    *("create_job", "patch_job", "scale_job", "delete_job", "get_job", "list_jobs", "watch_jobs"),
    *("run_in_pod", "list_pods", "list_nodes", "list_events", "pod_log"),
}
# Methods for the library, the client or a framework alone.
INTERNAL = {
    "Cluster": OF_A_CLUSTER,
    "ElasticCallback": {
        *("setup", "teardown", "on_fit_start", "on_train_start", "on_train_epoch_start"),
        *("on_train_batch_start", "on_before_backward", "on_train_batch_end", "on_train_end"),
    },
    "ElasticEnvironment": {"validate_settings"},
    "ElasticSampler": {
        *("trains", "has_micro_batches", "has_own_order", "counted_samples", "finished"),
        *("micro_batches_per_epoch", "state_dict", "load_state_dict"),
    },
    "ElasticStream": {"begin", "end_epoch", "worker_seed"},
    "ElasticTrainerMixin": {
        *("get_train_dataloader", "set_initial_training_values", "get_batch_samples"),
        *("prediction_step", "train", "training_step"),
    },
    "JobView": {"described_spares"},
    "KubernetesCluster": OF_A_CLUSTER,
    "Part": {"use_weight"},
    "PerRank": {"state_dict", "load_state_dict", "exchange"},
    "Trained": {
        *("state_dict", "load_state_dict", "template", "distrust", "shards", "suspects"),
        "take_checksums",
    },
}
# Classes whose methods another one's docstrings describe.
DESCRIBED_BY = {"ElasticStream": "ElasticSampler", "ShardedState": "State"}

Function = ast.FunctionDef
Public = ast.ClassDef | Function


def page() -> str:
    parts = [HEAD]
    for subject in SUBJECTS:
        parts.append(f"## {subject.title}\n\nModule: `{subject.module}`\n")
        for name in subject.names:
            parts += _entry(name, definition(subject.module, name)[1])
    return "\n".join(parts)


def exported(module: str) -> list[str]:
    assigned = (node for node in _tree(module).body if isinstance(node, ast.Assign))
    lists = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
    return [str(name) for name in ast.literal_eval(lists[0])] if lists else []


def definition(module: str, name: str) -> tuple[str, Public]:
    """The module that defines a name that another module offers, and its class or function.

    Raises LookupError if this project defines nothing of that name there.
    """
    if module.partition(".")[0] in FOLDERS:
        for node in ast.walk(_tree(module)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom) and name in (
                each.asname or each.name for each in node.names
            ):
                return definition(node.module or "", name)
    raise LookupError(f"{module} does not offer {name}")


def members(name: str) -> Iterator[Function]:
    """The public methods and properties of a class, with those of bases that are not listed."""
    hidden = INTERNAL.get(name, set()) | {each.name for each in methods(DESCRIBED_BY.get(name, ""))}
    seen: set[str] = set()
    for method in methods(name):
        if method.name not in hidden and method.name not in seen:
            seen.add(method.name)
            yield method


def methods(name: str) -> Iterator[Function]:
    for found in _family(name):
        for node in found.body:
            if isinstance(node, Function) and not node.name.startswith("_"):
                yield node


def _family(name: str) -> list[ast.ClassDef]:
    modules = {each: subject.module for subject in SUBJECTS for each in subject.names}
    return list(_with_bases(modules[name], name, frozenset(modules))) if name in modules else []


def _with_bases(module: str, name: str, listed: frozenset[str]) -> Iterator[ast.ClassDef]:
    try:
        home, found = definition(module, name)
    except LookupError:  # a base from elsewhere
        return
    if isinstance(found, ast.ClassDef):
        yield found
        for base in map(ast.unparse, found.bases):
            if base not in listed:
                yield from _with_bases(home, base, listed)


@cache
def _tree(module: str) -> ast.Module:
    first, *rest = module.split(".")
    path = FOLDERS[first].joinpath(first, *rest)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _entry(name: str, node: Public) -> Iterator[str]:
    about = read(ast.get_docstring(node) or "")
    yield f"### {name}\n"
    if isinstance(node, Function):
        yield _code(_signature(name, node))
        yield from _described(about, {})
        return
    if signature := _initializer(name, about):
        yield _code(signature)
    yield from _described(about, attributes(name))
    for method in members(name):
        if not _is_property(method):
            yield f"#### {name}.{method.name}\n"
            yield _code(_signature(f"{name}.{method.name}", method))
            yield from _described(read(ast.get_docstring(method) or ""), {})
    if other := DESCRIBED_BY.get(name):
        yield f"All else is as in [{other}](#{other.lower()}).\n"


def _described(about: Docstring, its_attributes: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    yield f"{about.text}\n"
    yield from _list("Arguments", about.entries.get("Args", {}).items())
    kinds = ((f"{name}: {t[0]}" if t[0] else name, t[1]) for name, t in its_attributes.items())
    yield from _list("Attributes", kinds)
    if about.outcome:
        yield f"**Returns:** {about.outcome}\n"
    errors = about.entries.get("Raises", {}).items()
    yield from _list("Raises", ((name, text) for name, text in errors if name not in MISTAKES))


def _list(head: str, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of names and texts, if there are any; neighbors without a text share an item."""
    items = []
    for is_clear, found in groupby(entries, key=lambda entry: not entry[1]):
        if is_clear:
            items.append(f"- {', '.join(f'`{name}`' for name, _ in found)}")
        else:
            items += [f"- `{name}`: {sentence(text)}" for name, text in found]
    if items:
        yield "\n".join([f"**{head}:**\n", *items, ""])


def attributes(name: str) -> dict[str, tuple[str, str]]:
    """The type and meaning of each attribute: of the docstring, a dataclass, and properties."""
    meanings: dict[str, str] = {}
    types: dict[str, str] = {}
    for each in reversed(_family(name)):
        meanings |= read(ast.get_docstring(each) or "").entries.get("Attributes", {})
        annotated = (node for node in each.body if isinstance(node, ast.AnnAssign))
        types |= {ast.unparse(node.target): _type(node.annotation) for node in annotated}
    is_dataclass = any("dataclass" in ast.unparse(mark) for mark in _family(name)[0].decorator_list)
    named = dict.fromkeys([*(types if is_dataclass else ()), *meanings])
    public = (each for each in named if not each.startswith("_"))
    found = {each: (types.get(each, ""), meanings.get(each, "")) for each in public}
    for method in filter(_is_property, members(name)):
        text = " ".join((ast.get_docstring(method) or "").split())
        found[method.name] = (_type(method.returns), text)
    return found


def _is_property(method: Function) -> bool:
    return "property" in map(ast.unparse, method.decorator_list)


def _initializer(name: str, about: Docstring) -> str:
    """How a class is called; empty if programs only get its objects."""
    functions = (n for each in _family(name) for n in each.body if isinstance(n, Function))
    initializer = next((node for node in functions if node.name == "__init__"), None)
    if initializer is None or "Args" not in about.entries:
        return ""
    return _signature(name, initializer, returns=False)


def _signature(name: str, node: Function, *, returns: bool = True) -> str:
    marks = {ast.unparse(mark) for mark in node.decorator_list}
    arguments = _arguments(node.args)
    if arguments and arguments[0] in ("self", "cls"):
        arguments = arguments[1:]
    outcome = _type(node.returns)
    if "contextmanager" in marks:
        outcome = outcome.replace("Iterator", "AbstractContextManager")
    end = f" -> {outcome}" if returns else ""
    line = f"{name}({', '.join(arguments)}){end}"
    if len(line) <= MAX_SIGNATURE:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in arguments), f"){end}"])


def _arguments(given: ast.arguments) -> list[str]:
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    found = [_argument(each, default) for each, default in zip(positional, defaults, strict=True)]
    if given.vararg:
        found.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        found.append("*")
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    found += [_argument(each, default) for each, default in named]
    return [*found, "**" + _argument(given.kwarg, None)] if given.kwarg else found


def _argument(given: ast.arg, default: ast.expr | None) -> str:
    text = f"{given.arg}: {_type(given.annotation)}" if given.annotation else given.arg
    if default is None:
        return text
    return text + (" = " if given.annotation else "=") + ast.unparse(default)


def _type(annotation: ast.expr | None) -> str:
    """An annotation as it is written, with forward references unquoted."""
    if annotation is None:
        return "None"
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return QUOTED_CLASS.sub(r"\1", ast.unparse(annotation))


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"
