"""A hook of MkDocs: titles, descriptions, and the words and the rank of a page in the search.

``pages.toml`` has a table for each page: its ``description``, a ``title`` where that of the navigation is not enough,
and ``words`` that people search for and that the page itself does not use. The search treats them as tags. The pages
of the reference, the pages for contributors and the changes rank below the guides.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGES = Path(__file__).with_name("pages.toml")
GUIDE_BOOST = 2.0
BOOSTS = {"Reference": 0.4, "For contributors": 0.2}
"""The boost of the pages below these entries of the navigation. All other pages have that of a guide."""


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Set what the theme and the search plugin read."""
    entry = descriptions().get(page.file.src_uri)
    if entry is None:
        return
    top = page.ancestors[-1].title if page.ancestors else ""
    page.meta["description"] = entry["description"]
    page.meta["full_title"] = entry.get("title") or f"{page.title} – {config.site_name}"
    page.meta["search"] = {"boost": entry.get("boost", BOOSTS.get(top, GUIDE_BOOST))}
    if "words" in entry:
        page.meta["tags"] = entry["words"]


@cache
def descriptions() -> dict[str, dict[str, Any]]:
    """Return the tables of ``pages.toml``."""
    return tomllib.loads(PAGES.read_text(encoding="utf-8"))
