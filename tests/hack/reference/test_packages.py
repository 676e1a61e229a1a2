"""The flowchart of the operator's packages."""

from graphlib import CycleError

import grimp
import pytest
from packages import BEGIN, END, flowchart, page

IMPORTS = {
    "o.cli": ["o.run.main"],
    "o.run.main": ["o.plan.rounds.next", "o.model.job"],
    "o.plan.decide": ["o.plan.rounds.next", "o.plan.failures.budget"],
    "o.plan.rounds.next": ["o.plan.failures.budget", "o.plan.rounds.size"],
    "o.plan.failures.budget": ["o.model.job"],
}


def a_graph(imports: dict[str, list[str]]) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    modules = {module for importer, imported in imports.items() for module in (importer, *imported)}
    for module in {".".join(module.split(".")[:depth]) for module in modules for depth in range(1, 5)}:
        graph.add_module(module)
    for importer, imported in imports.items():
        for module in imported:
            graph.add_import(importer=importer, imported=module)
    return graph


def test_flowchart_has_a_box_for_each_package_and_the_arrows_that_no_others_imply() -> None:
    assert flowchart(a_graph(IMPORTS), "o").splitlines() == [
        "flowchart TB",
        "    model[model]",
        "    subgraph plan[plan]",
        "        plan.failures[failures]",
        "        plan.rounds[rounds]",
        "        plan.rounds --> plan.failures",
        "    end",
        "    run[run]",
        "    plan --> model",
        "    run --> plan",
    ]


def test_cycle_of_imports_is_refused() -> None:
    with pytest.raises(CycleError, match=r"in a cycle.*'o\.model'"):
        flowchart(a_graph({**IMPORTS, "o.model.job": ["o.run.main"]}), "o")


def test_only_what_is_between_the_markers_is_written() -> None:
    text = page(f"# A page\n{BEGIN}old\n{END}The end.\n")
    assert text.startswith(f"# A page\n{BEGIN}\n```mermaid\nflowchart TB\n")
    assert text.endswith(f"```\n\n{END}The end.\n")
    assert "old" not in text
    with pytest.raises(ValueError, match="lacks the lines"):
        page("# A page\n")
