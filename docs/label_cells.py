"""A hook of MkDocs: each cell of a table has the heading of its column as an attribute.

Where a screen is too narrow for columns, the style sheet shows a row as a list, with these headings before the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig


class CellLabels(Treeprocessor):
    """Writes the attribute `data-label` of the cells. A cell without a heading gets none."""

    def run(self, root: Element) -> None:
        for table in root.iter("table"):
            heads = ["".join(head.itertext()) for head in table.iterfind("thead/tr/th")]
            for row in table.iterfind("tbody/tr"):
                for head, cell in zip(heads, row):
                    if head:
                        cell.set("data-label", head)


class LabelCells(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.treeprocessors.register(CellLabels(md), "cell labels", 15)  # after those that parse the text of the cells


def on_config(config: MkDocsConfig) -> None:
    """Add the extension, which no package contains."""
    extensions: list[str | Extension] = config.markdown_extensions
    extensions.append(LabelCells())
