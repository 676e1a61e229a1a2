"""The operator's packages and what they import of each other, as a Mermaid flowchart in docs/internals/architecture.md."""

from graphlib import TopologicalSorter
from itertools import permutations

import grimp

PACKAGE = "elastic_pytorch_operator"


def block() -> str:
    return f"```mermaid\n{flowchart(grimp.build_graph(PACKAGE, cache_dir=None), PACKAGE)}```"


def flowchart(graph: grimp.ImportGraph, package: str) -> str:
    """Returns a flowchart with a box for each package below a package, and an arrow to each that it imports.

    A package that has packages itself is a frame around them. An arrow is left out if a longer way of arrows implies it.

    Raises:
        graphlib.CycleError: packages import each other in a cycle.
    """
    return "\n".join(["flowchart TB", *_inside(graph, package, "    ")]) + "\n"


def _inside(graph: grimp.ImportGraph, package: str, indent: str) -> list[str]:
    lines: list[str] = []
    children = sorted(child for child in graph.find_children(package) if graph.find_children(child))
    for child in children:
        box = f"{_id(child)}[{child.rpartition('.')[2]}]"
        inside = _inside(graph, child, f"{indent}    ")
        lines += [f"{indent}subgraph {box}", *inside, f"{indent}end"] if inside else [f"{indent}{box}"]
    imports: dict[str, set[str]] = {child: set() for child in children}
    for child, other in permutations(children, 2):
        if graph.direct_import_exists(importer=child, imported=other, as_packages=True):
            imports[child].add(other)
    reached: dict[str, set[str]] = {}  # what a package imports, and what that imports in turn
    for child in TopologicalSorter(imports).static_order():
        reached[child] = imports[child].union(*(reached[other] for other in imports[child]))
    for child in children:
        implied = {further for other in imports[child] for further in reached[other]}
        lines += [f"{indent}{_id(child)} --> {_id(other)}" for other in sorted(imports[child] - implied)]
    return lines


def _id(package: str) -> str:
    return package.partition(".")[2]
