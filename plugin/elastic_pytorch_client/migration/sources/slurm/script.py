"""The `#SBATCH` lines and the commands of a batch script."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

DIRECTIVE = re.compile(r"#SBATCH\s+(.*)\Z")
SHORT = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "a": "array",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
FLAGS = {
    *("exclusive", "requeue", "no-requeue", "overcommit", "oversubscribe", "hold", "wait"),
    *("verbose", "quiet", "parsable"),
}
# Nodes of tree-sitter's bash grammar: one command, and what runs others perhaps or repeatedly.
SIMPLE = {
    *("command", "declaration_command", "test_command", "unset_command"),
    *("variable_assignment", "variable_assignments"),
}
NESTING = {
    *("case_statement", "c_style_for_statement", "compound_statement", "for_statement"),
    *("function_definition", "if_statement", "while_statement"),
}
WITHOUT_COMMANDS = {"comment", "file_redirect", "heredoc_redirect", "herestring_redirect"}
CONTINUED = re.compile(r"[ \t]*\\\n[ \t]*")


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command of a script, without its redirections; its continued lines are joined."""

    line: int  # of its beginning, from 1
    text: str
    nested: bool  # in a loop, a condition or a function
    unread: bool  # whether something in its lines is no bash that the grammar knows


@dataclass(frozen=True, slots=True)
class BatchScript:
    # Of sbatch, by their long names; a flag has an empty value.
    options: dict[str, str]
    commands: tuple[Command, ...]


def read_script(text: str) -> BatchScript:
    """Reads a batch script; as for sbatch, options after the first command are comments."""
    commands = tuple(read_commands_of(text))
    first = commands[0].line if commands else len(text)
    options: dict[str, str] = {}
    for line in text.splitlines()[: first - 1]:
        if directive := DIRECTIVE.match(line.strip()):
            options |= read_options(directive[1])
    return BatchScript(options, commands)


def read_commands_of(text: str) -> Iterator[Command]:
    """The simple commands of a shell's text; a pipeline's first stands for it."""
    # Imported late: the other verbs need no shell.
    from tree_sitter import Language, Parser  # noqa: PLC0415
    from tree_sitter_bash import language  # noqa: PLC0415

    source = text.replace("\r\n", "\n").rstrip().removesuffix("\\").encode()
    root = Parser(Language(language())).parse(source).root_node
    yield from _simple(root, frozenset(_unread(root)), nested=False)


def _unread(node: "Node") -> Iterator[int]:
    if node.is_error or node.is_missing:
        yield from range(node.start_point.row, node.end_point.row + 1)
    for child in node.children if node.has_error else ():
        yield from _unread(child)


def _simple(node: "Node", unread: frozenset[int], *, nested: bool) -> Iterator[Command]:
    if node.type in SIMPLE:
        rows = range(node.start_point.row, node.end_point.row + 1)
        yield Command(rows[0] + 1, _text(node), nested, not unread.isdisjoint(rows))
        return
    children = [child for child in node.named_children if child.type not in WITHOUT_COMMANDS]
    for place, child in enumerate(children[:1] if node.type == "pipeline" else children):
        perhaps = node.type in NESTING or (place > 0 and _is_choice(node))
        yield from _simple(child, unread, nested=nested or perhaps)


def _is_choice(node: "Node") -> bool:
    """Whether it is `a || b`, or `[ a ] && b`."""
    return node.type == "list" and (
        node.children[1].type == "||"
        or node.children[0].type in ("test_command", "negated_command")
    )


def _text(node: "Node") -> str:
    """A command on one line, except for what is quoted; arrays lose their comments."""
    assert node.text is not None  # the tree was parsed from bytes
    if node.type == "array":
        words = (_text(child) for child in node.named_children if child.type != "comment")
        return f"({' '.join(words)})"
    if node.type in ("declaration_command", "variable_assignment", "variable_assignments"):
        parts, end = [], node.start_byte
        for child in node.children:
            gap = node.text[end - node.start_byte : child.start_byte - node.start_byte].decode()
            parts += [CONTINUED.sub(" ", gap), _text(child)]
            end = child.end_byte
        return "".join(parts).replace("\n", " ")
    return CONTINUED.sub(" ", node.text.decode())


def read_options(text: str) -> dict[str, str]:
    """The options of sbatch or srun in a text, by their long names."""
    options, _ = split_options(words_of(text, comments=True))
    return options


def words_of(text: str, *, comments: bool = False) -> list[str]:
    """The words of a shell's text; those between spaces if its quotes are not closed."""
    try:
        return shlex.split(text, comments=comments)
    except ValueError:
        return text.split()


def split_options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and len(words[place]) > 1:
        word = words[place]
        place += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if (
                not equals
                and name not in FLAGS
                and place < len(words)
                and not words[place].startswith("-")
            ):
                value = words[place]
                place += 1
        else:
            name, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            if not value and word[1] in SHORT and place < len(words):
                value = words[place]
                place += 1
        options[name] = value
    return options, words[place:]
