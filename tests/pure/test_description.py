"""README as the description on a package index, and the links beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_backend import description, project_urls

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("address", ["", "https://example.org/us/kafka"])
def test_no_link_of_the_description_is_relative(address: str) -> None:
    assert [link for link in LINK.findall(description(README, address)) if not link.startswith(("https://", "#"))] == []


def test_links_lead_to_the_files_of_the_repository_and_pictures_to_their_bytes() -> None:
    address = "https://example.org/us/kafka"
    text = description("[![a](docs/a.svg)](docs/a.md) [b](https://b.example) [c](#c)", address)
    assert (
        text == f"[![a]({address}/raw/main/docs/a.svg)]({address}/blob/main/docs/a.md) [b](https://b.example) [c](#c)"
    )


def test_without_an_address_a_link_is_its_text_and_a_badge_is_left_out() -> None:
    assert description("[![a](docs/a.svg)](docs/a.md)\n[b](docs/b.md), [c](https://c.example)", "") == (
        "b, [c](https://c.example)"
    )


def test_the_links_of_the_package_come_from_the_address() -> None:
    assert project_urls("") == {}
    assert project_urls("https://example.org/us/kafka")["Issues"] == "https://example.org/us/kafka/issues"
