"""A hook of MkDocs: pages include files of the root directory, whose links then lead to pages of the site.

``--8<-- "README.md:features"`` on a line of its own includes the part of that file between two marks, or all of it. The
links of such a file are relative to the root directory: ``docs/writing.md`` becomes ``writing.md``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
INCLUDED = re.compile(r'^--8<-- "([^":/]+\.md)(?::(\w+))?"$', re.MULTILINE)
ELSEWHERE = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
}
"""The pages of the site that include these files."""


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each line that includes a file of the root directory."""
    return expand(markdown)


def expand(markdown: str) -> str:
    """Return the text of a page together with what it includes."""
    return INCLUDED.sub(lambda match: included(match[1], match[2]), markdown)


def included(name: str, section: str | None) -> str:
    """Return a part of a file, with links relative to ``docs``. Raises ValueError if it has no such part."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if section is not None:
        parts = re.findall(rf"\[start:{section}\] -->\n(.*?)<!-- --8<-- \[end:{section}\]", text, re.DOTALL)
        if len(parts) != 1:
            raise ValueError(f"{name} has {len(parts)} parts named {section!r}; one is needed")
        text = parts[0]
    return re.sub(r"(\]\(|src=\")([^)\s\"#]+)", lambda match: match[1] + site_link(match[2]), text)


def site_link(link: str) -> str:
    """Return a link of the root directory as a link of ``docs``."""
    return ELSEWHERE.get(link) or link.removeprefix("docs/")
