"""Reads properties from files, and resolves references: ``file:/path`` to a file, ``env:NAME`` to the environment."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from .. import disclosure
from ..errors import ConfigurationError


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a file of properties: TOML if its name ends in ``.toml``, otherwise Java's format.

    In TOML, a property may be ``linger.ms = 5``, or ``location`` in a table ``[ssl.truststore]``; lists are joined by
    commas. Raises ConfigurationError, which quotes names and line numbers and never a value.
    """
    file = Path(path)
    content, reason = b"", ""
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no path"
    if reason:
        raise ConfigurationError(f"cannot read the properties file {disclosure.path(path)}: {reason}")
    if file.suffix == ".toml":
        return _read_toml(content, str(path))
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # Java reads such a file as Latin-1
    return _read_java(text, str(path))


def read_tables(path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Read a TOML file with a table of properties for each name. Raises ConfigurationError, which quotes no value."""
    file, reason = Path(path), ""
    try:
        content = file.read_bytes()
    except OSError as error:
        content, reason = b"", error.strerror or "it cannot be read"
    if reason:
        raise ConfigurationError(f"cannot read {disclosure.path(path)}: {reason}")
    tables = {}
    for name, table in _load_toml(content, str(path)).items():
        if not isinstance(table, dict):
            raise ConfigurationError(
                f"{disclosure.setting(name)} in {disclosure.path(path)} must be a table, as in [prod]"
            )
        tables[name] = dict(_flatten(table, ""))
    return tables


def _read_toml(content: bytes, path: str) -> dict[str, str]:
    return dict(_flatten(_load_toml(content, path), ""))


def _load_toml(content: bytes, path: str) -> dict[str, object]:
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path!r} is a TOML file, so it must be UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line \d+", str(error))
        where = f", {place[0]}" if place else ""
        raise ConfigurationError(f'{path!r}{where} must be TOML; quote strings, as in client.id = "orders"') from None


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key
        match value:
            case dict():
                yield from _flatten(value, name + ".")
            case bool():
                yield name, str(value).lower()
            case str() | int() | float():
                yield name, str(value)
            case list() if all(isinstance(item, str | int) for item in value):
                yield name, ",".join(map(str, value))
            case _:
                what = f"{name} must be a string, a number, true, false, or a list of strings"
                raise ConfigurationError(f"{what}, got {type(value).__name__}")


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def _read_java(text: str, path: str) -> dict[str, str]:
    properties = {}
    for number, line in _logical_lines(text):
        try:
            name, value = _split(line)
        except ValueError:
            raise ConfigurationError(f"{path!r}, line {number}: \\u must have four hexadecimal digits") from None
        properties[name] = value
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank and no comment.

    A backslash at the end joins a line with the next.
    """
    joined, start = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(_BLANKS)
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        joined += line
        backslashes = len(joined) - len(joined.rstrip("\\"))
        if backslashes % 2:
            joined = joined[:-1]
            continue
        yield start, joined
        joined, start = "", 0
    if start:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    """Split a line into name and value, at the first ``=``, ``:`` or blank without a backslash before it."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescaped(line[:end]), _unescaped(rest)


def _unescaped(text: str) -> str:
    """Resolve the escapes of a text. Raises ValueError for a ``\\u`` without its digits."""

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(match[2], 16)) if code == "u" else _ESCAPES.get(code, code)

    if re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", text):
        raise ValueError("not four digits")
    # Two escapes may stand for one character beyond the basic plane, as a pair of surrogates.
    resolved = re.sub(r"\\(u(?=([0-9a-fA-F]{4}))|.)(?:(?<=u)[0-9a-fA-F]{4})?", replace, text, flags=re.DOTALL)
    return resolved.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def resolve(name: str, value: str) -> str:
    """Resolve the value of a property: a reference ``env:NAME`` or ``file:/path`` is replaced by what it stands for.

    Raises ConfigurationError, which names the property.
    """
    if value.startswith("env:"):
        variable = os.environ.get(value[4:])
        if variable is None:
            is_name = re.fullmatch(r"[A-Z_][A-Z0-9_]{0,80}|[a-z_][a-z0-9_]{0,80}", value[4:]) is not None
            shown_name = repr(value[4:]) if is_name else f"({disclosure.kind(value[4:])} that is no name)"
            raise ConfigurationError(f"{name}: environment variable {shown_name} is not set")
        return variable
    if value.startswith("file:"):
        path = "/" + value[5:].lstrip("/") if value.startswith("file:/") else value[5:]
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(f"{name}: cannot read {disclosure.path(path)}: {reason}")
    return value
