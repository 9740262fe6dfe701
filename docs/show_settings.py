"""An extension of griffe for the reference: short signatures that show the arguments that a function accepts.

The settings of a constructor stay ``**settings``, with links to the tables of the page Settings, which describes each
of them once. ``*more: Never`` and ``**other: Never`` disappear.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

import list_settings

from aiokafka_lite.settings import keywords


class ShowSettings(griffe.Extension):
    """Makes signatures show the arguments that a function accepts."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Divide the docstring after its first paragraph. The template puts the table of methods between the parts."""
        if cls.docstring is not None:
            first, _, rest = cls.docstring.value.partition("\n\n")
            cls.docstring.parsed[:] = [griffe.DocstringSectionText(text) for text in (first, rest) if text]

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        for parameter in list(func.parameters):
            if str(parameter.annotation) == "Never":  # explains the arguments of other clients, and takes none
                del func.parameters[parameter.name]
        rest = next(
            (parameter for parameter in func.parameters if parameter.kind is griffe.ParameterKind.var_keyword), None
        )
        if rest is None or func.name != "__init__":
            return
        accepted = getattr(keywords, str(rest.annotation).removeprefix("Unpack[").removesuffix("]"), None)
        if accepted is not None:
            func.docstring = griffe.Docstring("", parent=func)
            func.docstring.parsed.append(griffe.DocstringSectionText(pointer(accepted.__annotations__)))


def pointer(names: Collection[str]) -> str:
    """Return a sentence with links to the tables that have these settings."""
    links = []
    for config, title, _ in list_settings.CONFIGURATIONS:
        missing = {field.name for field in fields(config)} - {*names, *list_settings.ARGUMENTS}
        if missing <= {list_settings.TOPICS}:  # Admin writes and reads no topic
            but = f" (without `{list_settings.TOPICS}`)" if missing else ""
            links.append(f"[{title}](../settings/#{title.lower().replace(' ', '-')}){but}")
    return f"`**settings` are the settings of these tables: {', '.join(links)}."
