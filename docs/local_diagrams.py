"""A hook of MkDocs: pages with diagrams load Mermaid from the site, not from another server.

The theme would load it from there, so that without a connection the diagrams are shown as text. The package `mermaidx`
contains Mermaid's own file.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

SCRIPT = "assets/mermaid.js"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add Mermaid to the files of the site."""
    package = find_spec("mermaidx")
    assert package is not None, "mermaidx is not installed; run: make docs"
    assert package.origin is not None
    script = Path(package.origin).with_name("assets") / "mermaid.js"
    files.append(File.generated(config, SCRIPT, content=script.read_bytes()))
    return files


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Load Mermaid before the theme looks for it."""
    if 'class="mermaid"' not in html:
        return html
    return f'{html}\n<script src="{get_relative_url(SCRIPT, page.url)}"></script>'
