"""Write the file map of ``docs/internals.md``: a line for each module, from the first sentence of its docstring.

``python docs/list_files.py`` after a module was added, moved or given another purpose.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "internals.md"
BEGIN, END = "<!-- file map: begin (docs/list_files.py writes it) -->", "<!-- file map: end -->"


def page() -> str:
    """Return the whole page with a fresh map."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{file_map()}\n{END}{rest.partition(END)[2]}"


def file_map() -> str:
    """Return a table for each folder of the package."""
    files = sorted((ROOT / "aiokafka_lite").rglob("*.py"), key=lambda path: (path.parent.as_posix(), path.name))
    parts = []
    for folder, inside in groupby(files, key=lambda path: path.parent):
        rows = [f"| `{path.name}` | {purpose(path)} |" for path in inside if path.stat().st_size and purpose(path)]
        if rows:
            parts.append("\n".join([f"### `{folder.relative_to(ROOT).as_posix()}/`", "", "| file | purpose |",
                                    "|---|---|", *rows, ""]))  # fmt: skip
    return "\n".join(parts)


def purpose(path: Path) -> str:
    """Return the first sentence of the module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    sentence = re.match(r".+?[.:](?= [A-Z]|$)|.+", first)
    return "" if sentence is None else sentence[0].rstrip(".:").replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
