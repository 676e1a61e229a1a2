"""The configuration of the site, with the names that Sphinx looks for."""

from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]

VERSION = (Path(__file__).resolve().parents[2] / "VERSION").read_text().strip()

project = "elastic-pytorch-operator"
version = release = VERSION
extensions = ["myst_parser"]
root_doc = "README"
highlight_language = "text"  # of indented blocks, which have no name of a language
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a page may leave out a level

html_theme = "furo"
html_title = f"{project} {VERSION}"
html_js_files = ["diagrams.js"]
html_css_files = ["tables.css"]
html_show_sourcelink = html_copy_source = False
html_show_copyright = html_show_sphinx = False


def setup(app: Any) -> None:
    """Diagrams stay text, which `diagrams.js` draws in the reader's browser."""
    app.add_lexer("mermaid", TextLexer)
