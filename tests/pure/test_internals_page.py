"""docs/internals.md lists every module, and the files that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import list_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = list_files.PAGE.read_text(encoding="utf-8")


def test_the_file_map_is_current() -> None:
    assert list_files.page() == PAGE, "run: python docs/list_files.py"


def test_every_module_has_a_purpose() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "aiokafka_lite").rglob("*.py")
        if path.stat().st_size and not list_files.purpose(path)
    ]
    assert silent == []


def test_files_and_tests_that_the_page_names_exist() -> None:
    written = PAGE.partition(list_files.BEGIN)[0]
    named = set(re.findall(r"`((?:tests/)?[\w/<>]+(?:\.py|/[\w<>]+))`", written))
    missing = [name for name in named if "<" not in name and not _exists(name)]
    assert missing == []


def _exists(name: str) -> bool:
    return any(any(folder.glob(name)) for folder in (ROOT, ROOT / "aiokafka_lite"))
