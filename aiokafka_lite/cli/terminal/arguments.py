"""Arguments that several commands take. Pure; each function imports what it needs when it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum


class Isolation(StrEnum):
    """The values of ``--isolation-level``."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


_ESCAPE = re.compile(rb"\\(?:([ntr0\\])|x([0-9a-fA-F]{2}))")
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def name_value(option: str, text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``. Raises ConfigurationError, without the value, because that may be a secret."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        from ... import disclosure
        from ...errors import ConfigurationError

        setting = disclosure.setting(name)
        display = repr(name) if setting == name or not name else disclosure.kind(name)
        raise ConfigurationError(f"--{option} must be NAME=VALUE, got {display}")
    return name, value


def principal_of(user: str) -> str:
    """Return the principal of a user, which may be given as a principal (``User:alice``) or by name."""
    return user if ":" in user else f"User:{user}"


def names_and_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Parse texts as ``NAME=VALUE``; the last of equal names counts. Raises ConfigurationError for any other form."""
    return dict(name_value(option, text) for text in texts)


def setting_changes(settings: Iterable[str], unset: Iterable[str]) -> dict[str, str | None]:
    """Return the new values of ``--set`` by name, and None for names of ``--unset``. A name in both is an error."""
    changes: dict[str, str | None] = dict(names_and_values("set", settings))
    for name in unset:
        if changes.setdefault(name, None) is not None:
            from ...errors import ConfigurationError

            raise ConfigurationError(f"{name} must not be both set and unset")
    return changes


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text. As in kcat, ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\xff`` stand for one byte
    each.
    """
    return _ESCAPE.sub(
        lambda match: _ESCAPED[match[1]] if match[1] else bytes.fromhex(match[2].decode()), text.encode()
    )
