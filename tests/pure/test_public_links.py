"""The public address of the project, given once, is in the package's metadata and in the site."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import public_links

ROOT = public_links.ROOT
ADDRESS = "https://code.example.org/team/aiokafka_lite"
SOURCES = ("setup.py", "build_backend.py", "public_links.py", "README.md", "aiokafka_lite/version.py")


def metadata_with(address: str, directory: Path) -> Message:
    """Return the metadata that setuptools writes into the sdist and the wheel of a project with this address."""
    (directory / "aiokafka_lite").mkdir()
    for path in SOURCES:
        shutil.copy(ROOT / path, directory / path)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert settings.count('\nrepository = "') == 1
    settings = re.sub(r'(?m)^repository = ".*"', f'repository = "{address}"', settings)
    (directory / "pyproject.toml").write_text(settings, encoding="utf-8")
    command = [sys.executable, "setup.py", "--quiet", "egg_info"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return message_from_string((directory / "aiokafka_lite.egg-info/PKG-INFO").read_text(encoding="utf-8"))


def links_of(metadata: Message) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", str(metadata.get_payload()))


def test_an_address_makes_every_link_of_the_metadata_absolute(tmp_path: Path) -> None:
    metadata = metadata_with(ADDRESS, tmp_path)
    links = links_of(metadata)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert f"Source, {ADDRESS}" in metadata.get_all("Project-URL", [])
    targets = {link: re.sub(rf"^{re.escape(ADDRESS)}/(blob|raw)/main/", "", link) for link in links}
    assert [link for link, path in targets.items() if path == link or not (ROOT / path).exists()] == []
    images = [link for link in links if "/raw/" in link]
    assert images
    assert all(link.endswith((".png", ".svg")) for link in images)


def test_without_an_address_the_metadata_has_no_url_and_the_readme_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_links, "repository", lambda: "")
    fields = public_links.metadata()
    assert "project_urls" not in fields
    assert fields["long_description"] == (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_badge_names_the_versions_of_python_that_the_metadata_has() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', settings)
    badge = (ROOT / "docs/images/badge-python.svg").read_text(encoding="utf-8")
    assert f">{versions[0]} – {versions[-1]}<" in badge


def test_the_site_links_to_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Message()  # any object with attributes, because MkDocs is not installed for the tests
    monkeypatch.setattr(public_links, "repository", lambda: ADDRESS)
    changed = public_links.on_config(config)  # type: ignore[arg-type]
    assert (changed.repo_url, changed.repo_name, changed.edit_uri) == (ADDRESS, "aiokafka_lite", "edit/main/docs/")
