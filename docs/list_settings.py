"""Write ``docs/settings.md`` from the configuration dataclasses: ``python docs/list_settings.py``.

The description of a setting is the docstring below its field; Java's names and defaults, those of Kafka 4.3, are in the
annotation. A test fails if one of them is missing.

It also writes ``aiokafka_lite/settings/keywords.py``, the types of the clients' keyword arguments, with the type, the
description and the default of each field. Type checkers and editors show them. A test fails if a file is outdated.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import MISSING, Field, fields
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))


from aiokafka_lite.settings.checks import KIB, MIB  # noqa: E402
from aiokafka_lite.settings.client import ClientConfig  # noqa: E402
from aiokafka_lite.settings.consumer import ConsumerConfig  # noqa: E402
from aiokafka_lite.settings.group import GroupConfig  # noqa: E402
from aiokafka_lite.settings.java import SAME, Java, Unset  # noqa: E402
from aiokafka_lite.settings.producer import ProducerConfig  # noqa: E402
from aiokafka_lite.settings.share import ShareConfig  # noqa: E402

Note = TypeVar("Note")

PAGE = ROOT / "docs" / "settings.md"

KEYWORDS = ROOT / "aiokafka_lite" / "settings" / "keywords.py"
"""The types of the clients' keyword arguments."""

ARGUMENTS = ("bootstrap_servers", "group_id")
"""Fields of configurations that are named parameters of the clients."""

TOPICS = "allow_auto_create_topics"
"""The setting that all clients take except ``Admin``."""

CONFIGURATIONS: list[tuple[type, str, str]] = [
    (ClientConfig, "Every client", "`Producer`, `Consumer`, `ConsumerGroup` and `Admin` take these."),
    (ProducerConfig, "Producer", ""),
    (ConsumerConfig, "Consumer", "`Consumer` and `ConsumerGroup` take these."),
    (GroupConfig, "Group", "`ConsumerGroup`, and `Consumer` with a `group_id`, take these."),
    (ShareConfig, "Share group", "`ShareConsumer` takes these."),
]


HEAD = """# Settings

All settings are keyword arguments of the clients. Times are in seconds, sizes in bytes. A wrong setting raises
`ConfigurationError` in the constructor, which names the setting, what is allowed, and the given value. Java's names and
defaults are those of Kafka 4.3; a default in **bold** differs from this client's. This page is made from
the classes in `aiokafka_lite/settings/` by `docs/list_settings.py`; change those, not the page.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(section(*row) for row in CONFIGURATIONS)])


def section(config: type, title: str, about: str) -> str:
    """Return the settings of one class."""
    purposes = docstrings(config)
    lines = [
        f"## {title}",
        "",
        *([about, ""] if about else []),
        "| setting | default | | in Java | its default |",
        "|---|---|---|---|---|",
        *(line(config, field, purposes[field.name]) for field in fields(config)),
        "",
    ]
    return "\n".join(lines)


def line(config: type, setting: Field[object], purpose: str) -> str:
    """Return one row of a table."""
    java = notes(config, setting.name, Java)[0]
    ours = default(config, setting)
    names = "—" if java.names is None else ", ".join(f"`{name}`" for name in java.names.split(", "))
    theirs = "" if java.names is None else ours
    if java.default is not SAME:
        theirs = f"**{java.default if isinstance(java.default, str) else shown(setting.name, java.default)}**"
    return f"| `{setting.name}` | {ours} | {purpose.replace('``', '`').replace('|', '&#124;')} | {names} | {theirs} |"


def notes(config: type, name: str, kind: type[Note]) -> list[Note]:
    """Return the annotations of this kind of a field."""
    return [note for note in get_args(get_type_hints(config, include_extras=True)[name]) if isinstance(note, kind)]


def default(config: type, setting: Field[object]) -> str:
    """Return the default to print, or "required"."""
    if setting.default is MISSING:
        return "required"
    if setting.default is None:
        return next((note.words for note in notes(config, setting.name, Unset)), "none")
    return shown(setting.name, setting.default)


def shown(name: str, value: object) -> str:
    """Return a value with its unit."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value * 1000:g} ms" if 0 < value < 0.1 else f"{value:g} s"
    if isinstance(value, Enum):
        return f'`"{value.name.lower()}"`'
    if isinstance(value, int):
        return size(value) if name.endswith(("_bytes", "_size", "_memory")) else str(value)
    return f'`"{value}"`' if value else "empty"


def size(number: int) -> str:
    """Return bytes in the largest unit that divides them."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if number >= unit and number % unit == 0:
            return f"{number // unit} {name}"
    return f"{number} byte{'s' if number != 1 else ''}"


def docstrings(config: type) -> dict[str, str]:
    """Return the docstring below each field. Python itself does not keep them, so they are read from the source."""
    return {name: text for name, (_, text) in _declarations(config).items()}


def _declarations(config: type) -> dict[str, tuple[str, str]]:
    """Return the type, as source text without annotations, and the docstring of each field."""
    (definition,) = ast.parse(inspect.getsource(config)).body
    assert isinstance(definition, ast.ClassDef)
    declarations = {}
    for field, following in pairwise(definition.body):
        match field, following:
            case (
                ast.AnnAssign(ast.Name(name), ast.Subscript(slice=ast.Tuple([kind, *_]))),
                ast.Expr(ast.Constant(str(text))),
            ):
                declarations[name] = ast.unparse(kind), " ".join(text.split())
    return declarations


def keywords() -> str:
    """Return the source of ``keywords.py``."""
    imports, _, _ = KEYWORDS.read_text(encoding="utf-8").partition("class ")
    of_topics = list(_keywords(ClientConfig, {TOPICS}))
    return imports + "\n\n\n".join(
        "\n".join(lines)
        for lines in (
            [
                "class ClientSettings(TypedDict, total=False):",
                '    """The settings of every client: the fields of `ClientConfig`."""\n',
                *_keywords(ClientConfig, {field.name for field in fields(ClientConfig)} - {TOPICS}),
            ],
            [
                "class ProducerSettings(ClientSettings, total=False):",
                '    """The settings of ``Producer``: the fields of ``ClientConfig`` and ``ProducerConfig``."""\n',
                *of_topics,
                *_keywords(ProducerConfig),
            ],
            [
                "class ConsumerSettings(ClientSettings, total=False):",
                '    """The settings of ``Consumer`` and ``ConsumerGroup``: the fields of their configurations."""\n',
                *of_topics,
                *_keywords(ConsumerConfig),
                *_keywords(GroupConfig),
            ],
            [
                "class ShareConsumerSettings(ClientSettings, total=False):",
                '    """The settings of ``ShareConsumer``: the fields of its configurations."""\n',
                *of_topics,
                *_keywords(ShareConfig),
                "",
            ],
        )
    )


def _keywords(config: type, names: Collection[str] | None = None) -> Iterator[str]:
    """Yield the lines for these fields of a configuration, or for all of them."""
    declarations = _declarations(config)
    for setting in fields(config):
        if setting.name in ARGUMENTS or (names is not None and setting.name not in names):
            continue
        kind, text = declarations[setting.name]
        value = f"``{setting.default}``" if isinstance(setting.default, bool) else default(config, setting)
        docstring = f'"""{text} Default: {re.sub("(?<!`)`(?!`)", "``", value)}."""'
        yield f"    {setting.name}: {kind}"
        yield from (
            f"    {line}" for line in textwrap.wrap(docstring, 116, break_long_words=False, break_on_hyphens=False)
        )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    KEYWORDS.write_text(keywords(), encoding="utf-8")
