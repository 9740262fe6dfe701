"""Links within the documentation lead to pages and headings that exist, and every page is in the site's navigation."""

from __future__ import annotations

import re
from pathlib import Path

import describe_pages
import include_pages
import pytest

from tests.pure.documents import PAGES, ROOT

CHANGES = ROOT / "CHANGELOG.md"


def text_of(page: Path) -> str:
    """Return the text of a page with the parts of other files that it includes, without blocks of code."""
    text = include_pages.expand(page.read_text(encoding="utf-8"))
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the names that the site gives to headings, and to the entries of the reference."""
    text = text_of(page)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    headings = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}
    return headings.union(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("page", [*PAGES, CHANGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            broken.append(link)
    assert broken == []


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in PAGES if page.name != "README.md")


def test_every_page_has_a_description_of_its_own() -> None:
    entries = describe_pages.descriptions()
    assert sorted(entries) == sorted(page.name for page in PAGES if page.name != "README.md"), "docs/pages.toml"
    descriptions = [entry["description"] for entry in entries.values()]
    assert sorted(set(descriptions)) == sorted(descriptions)
    assert [text for text in descriptions if len(text) > 160] == [], "search engines show about 160 characters"
