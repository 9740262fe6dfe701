"""An extension of griffe for the reference: signatures show the arguments that a function accepts.

``**settings: Unpack[...]`` of a constructor becomes a parameter for each setting, and a table has their types, defaults
and meaning. ``*more: Never`` and ``**other: Never`` disappear.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field, fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

import list_settings

from aiokafka_lite.settings import keywords


class ShowSettings(griffe.Extension):
    """Makes signatures show the arguments that a function accepts."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        for parameter in list(func.parameters):
            if str(parameter.annotation) == "Never":  # explains the arguments of other clients, and takes none
                del func.parameters[parameter.name]
        rest = next(
            (parameter for parameter in func.parameters if parameter.kind is griffe.ParameterKind.var_keyword), None
        )
        if rest is None:
            return
        if func.name == "__init__" and str(rest.annotation).startswith("Unpack["):
            expand(func, rest)


def expand(func: griffe.Function, rest: griffe.Parameter) -> None:
    """Replace the keyword dictionary of a constructor by its keys, if all of them are settings."""
    accepted = getattr(keywords, str(rest.annotation)[len("Unpack[") : -1])
    types = {name: kind.__forward_arg__ for name, kind in accepted.__annotations__.items() if name in described()}
    if types.keys() != accepted.__annotations__.keys():
        return
    del func.parameters[rest.name]
    rows = []
    for name, kind in types.items():
        config, field, purpose = described()[name]
        only = griffe.ParameterKind.keyword_only
        func.parameters.add(griffe.Parameter(name, annotation=kind, kind=only, default=default(field)))
        shown = list_settings.default(config, field).replace("`", "")
        rows.append(griffe.DocstringParameter(name, annotation=kind, description=purpose, value=shown))
    func.docstring = griffe.Docstring("", parent=func)
    func.docstring.parsed.append(griffe.DocstringSectionParameters(rows, title="Settings:"))


@cache
def described() -> dict[str, tuple[type, Field[Any], str]]:
    """Return the configuration, the field and the description of each setting."""
    return {
        field.name: (config, field, list_settings.docstrings(config)[field.name].replace("``", "`"))
        for config, _, _ in list_settings.CONFIGURATIONS
        for field in fields(config)
    }


def default(field: Field[Any]) -> str:
    """Return the default as Python code."""
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return repr(value.name.lower() if isinstance(value, Enum) else value)
