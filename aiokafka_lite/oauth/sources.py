"""Tokens from a file, and the functions that a property names."""

from __future__ import annotations

import os
import re
from importlib import import_module
from importlib.util import find_spec

from .. import disclosure
from ..errors import ConfigurationError, ConnectionLost
from ..settings.security import Secret


class TokenFromFile:
    """Reads the token from a file at each login, for a process that renews the file, as Kubernetes does.

    A call raises ConnectionLost if the file cannot be read or is empty, and the client tries again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __repr__(self) -> str:
        return f"<TokenFromFile {disclosure.path(self._path)}>"

    def __call__(self) -> str:
        reason = ""
        try:
            with open(self._path, encoding="utf-8") as file:
                token = file.read().strip()
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except ValueError:  # not UTF-8, or a NUL in the path
            reason = "it is not a text in UTF-8"
        if reason:
            raise ConnectionLost(f"cannot read the token in {disclosure.path(self._path)}: {reason}", sent=False)
        if not token:
            raise ConnectionLost(f"the file {disclosure.path(self._path)} has no token", sent=False)
        return Secret(token)


_NAME = re.compile(r"[a-z_]{1,40}(?:\.[a-z_]{1,40}){0,6}(?::[A-Za-z_]{1,40})?")
"""A dotted name without digits. A token has digits, or capital letters before a colon."""


def imported_provider(setting: str, path: str) -> object:
    """Import the function ``module:function``, which a property names. Raises ConfigurationError."""
    module, colon, attribute = path.partition(":")
    # A token may be given as the name. It is quoted if the first part of it is a module.
    is_identifier = all(part.isidentifier() for part in re.split("[.:]", path))
    is_name = _NAME.fullmatch(path) is not None or (is_identifier and _is_module(module.partition(".")[0]))
    source = f"{setting}={path!r}" if is_name else f"{setting}, {disclosure.kind(path)} that is not shown"
    if not (module and colon and attribute):
        excerpt = repr(path) if is_name else disclosure.kind(path)
        raise ConfigurationError(f"{setting} must be module:function, got {excerpt}")
    try:
        provider: object = import_module(module)
        for name in attribute.split("."):
            provider = getattr(provider, name)
    except (ImportError, AttributeError, ValueError) as error:
        reason = str(error) if is_name else "there is no such module"
    except Exception as error:  # noqa: BLE001 - the import runs the module, and the text of its error may contain a token
        reason = f"it raised {type(error).__name__}"
    else:
        if not callable(provider):
            excerpt = repr(path) if is_name else disclosure.kind(path)
            raise ConfigurationError(f"{setting} must be the name of a function, got {excerpt}")
        return provider
    raise ConfigurationError(f"cannot import {source}: {reason}")


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
