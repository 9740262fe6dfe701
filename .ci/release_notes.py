"""Prints what CHANGELOG.md says about a version: ``python .ci/release_notes.py 0.1.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """Return the section of a version. A version that is missing, or marked as not released, is an error."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for section in sections:
        heading, _, text = section.partition("\n")
        if heading.split()[0] == version:
            if "not released" in heading:
                raise ValueError(f"CHANGELOG.md says that {version} is not released: give it a date")
            return text.strip() + "\n"
    raise ValueError(f"CHANGELOG.md has no section {version}; it has {[section.split()[0] for section in sections]}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: release_notes.py VERSION")
    try:
        print(notes(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(str(error))
