"""The project's public address: given once in pyproject.toml, used by the package's metadata and by the site.

``[tool.aiokafka_lite] repository`` is the address of a repository whose pages are named as GitHub names them. If it is
empty, the metadata has no URL, and the links of the README stay as they are: relative to the repository.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parent
BRANCH = "main"
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")
"""The end of a link or an image of Markdown that leads to a file of the repository."""


def repository() -> str:
    """The address without a slash at its end; empty if the project has none yet."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    address = str(settings["tool"]["aiokafka_lite"]["repository"]).rstrip("/")
    if address and not address.startswith("https://"):
        raise SystemExit(f"repository in pyproject.toml must begin with https://, got {address!r}")
    return address


def metadata() -> dict[str, Any]:
    """What ``setup()`` takes for the two dynamic fields of pyproject.toml: ``readme`` and ``urls``."""
    text, address = (ROOT / "README.md").read_text(encoding="utf-8"), repository()
    fields: dict[str, Any] = {"long_description": text, "long_description_content_type": "text/markdown"}
    if address:
        fields["long_description"] = _LINK.sub(lambda link: _absolute(link, address), text)
        fields["project_urls"] = {
            "Homepage": address,
            "Documentation": f"{address}/blob/{BRANCH}/docs/index.md",
            "Changelog": f"{address}/blob/{BRANCH}/CHANGELOG.md",
            "Source": address,
            "Issues": f"{address}/issues",
        }
    return fields


def _absolute(link: re.Match[str], address: str) -> str:
    page = "raw" if link[1].endswith((".png", ".svg")) else "blob"
    return f"]({address}/{page}/{BRANCH}/{link[1]})"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A hook of MkDocs: the site links to the repository, and each page to its source."""
    if address := repository():
        config.repo_url, config.repo_name = address, address.rpartition("/")[2]
        config.edit_uri = f"edit/{BRANCH}/docs/"
    return config
