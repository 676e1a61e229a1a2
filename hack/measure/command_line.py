"""What the programs that measure on the kind cluster have in common on the command line."""

import argparse
import sys
from collections.abc import Callable, Collection
from typing import Any

from rich.console import Console

WIDTH = 160  # columns, where the output is no terminal


def new_console(**options: Any) -> Console:
    """A console as wide as the terminal.

    Args:
        options: of rich's console.
    """
    return Console(width=None if sys.stdout.isatty() else WIDTH, **options)


def names_of(known: Collection[str], what: str = "name") -> Callable[[str], list[str]]:
    """A type for argparse: names with commas between them, in the order in which they are known.

    Args:
        known: the names.
        what: one of them is, for people.
    """

    def parse(text: str) -> list[str]:
        wanted = text.split(",")
        if unknown := [name for name in wanted if name not in known]:
            raise argparse.ArgumentTypeError(f"no such {what}: {', '.join(unknown)}; there are {', '.join(known)}")
        return [name for name in known if name in wanted]

    return parse
