"""Selects records: by a pattern, by headers, and by an expression of CEL, the Common Expression Language.

The pattern and the headers look at bytes, so they come first: only the records that pass them are parsed for the
expression.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...arguments import must_be
from ...consumer.columns import Batch
from ...errors import ConfigurationError
from ...extras import extra
from ...types import Header
from .run import say

if TYPE_CHECKING:
    from .decoding import Cell, Columns

_UNKNOWN = re.compile(r"Undefined variable or function: '([^']*)'")
_POSITION = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*)")
_BOUND = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*(\w+)\s*,")
"""A name that a macro of CEL gives to the items of a list, as in ``value.lines.exists(line, line.n > 1)``."""
_LONGEST_TIME = 253_402_300_799_999
"""Milliseconds until the end of the year 9999, which a datetime can hold."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the user searches for; all empty for every record."""

    where: str | None = None
    grep: str | None = None
    headers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.where is not None or self.grep is not None or bool(self.headers)


class Search:
    """Selects records of batches. Owner: the command. Raises ConfigurationError for a wrong pattern or expression."""

    def __init__(self, options: SearchOptions) -> None:
        self._pattern = None if options.grep is None else _pattern(options.grep)
        self._headers = [_header(text) for text in options.headers]
        self._expression = None if options.where is None else Expression(options.where)

    def select(self, batch: Batch, decoded: Columns | None, limit: int) -> tuple[Batch, Columns | None]:
        """Return the first ``limit`` records that are searched for, in a batch of their own."""
        selected: list[int] = []
        for index in range(len(batch)):
            if self._matches(batch, decoded, index):
                selected.append(index)
                if len(selected) == limit:
                    break
        if decoded is not None:
            decoded = decoded._replace(
                keys=[decoded.keys[index] for index in selected], values=[decoded.values[index] for index in selected]
            )
        matching = replace(
            batch,
            offsets=[batch.offsets[index] for index in selected],
            timestamps=[batch.timestamps[index] for index in selected],
            keys=[batch.keys[index] for index in selected],
            values=[batch.values[index] for index in selected],
            headers=[batch.headers[index] for index in selected],
        )
        return matching, decoded

    def report(self) -> None:
        """Print how many records the expression could not be compared with."""
        if self._expression is not None:
            self._expression.report()

    def _matches(self, batch: Batch, decoded: Columns | None, index: int) -> bool:
        headers = batch.headers[index]
        if self._headers and not all(_has(headers, name, value) for name, value in self._headers):
            return False
        key, value = (batch.keys, batch.values) if decoded is None else decoded
        if self._pattern is not None and not any(
            self._pattern.search(data) for cell in (key[index], value[index]) if (data := _bytes(cell)) is not None
        ):
            return False
        return self._expression is None or self._expression.matches(batch, key[index], value[index], index)


class Expression:
    """An expression of CEL about a record. Raises ConfigurationError, with the place of the mistake."""

    def __init__(self, text: str) -> None:
        self._text = text
        cel = extra("cel", "search")
        try:
            self._program = cel.compile(text)
        except ValueError as error:
            raise _wrong(text, str(error)) from None
        self._failed = 0
        self._first_error = ""
        self._check_names()
        self._names = tuple(name for name in self._program.variables() if name in _READERS)

    def __repr__(self) -> str:
        return f"<Expression {self._text!r}>"

    def matches(self, batch: Batch, key: Cell, value: Cell, index: int) -> bool:
        """Return whether a record matches. A field that it lacks, or a comparison of other types, is no match."""
        names = {name: _READERS[name](batch, key, value, index) for name in self._names}
        try:
            result = self._program.execute(names)
        except (KeyError, IndexError):
            return False
        except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            self._failed += 1
            place = f"{batch.topic}-{batch.partition} at offset {batch.offsets[index]}"
            self._first_error = self._first_error or f"{place}: {_reason(error, names)}"
            return False
        if not isinstance(result, bool):
            raise ConfigurationError(must_be("--where", "an expression that is true or false", result))
        return result

    def report(self) -> None:
        """Print how many records could not be compared."""
        if self._failed:
            say(f"--where could not be compared with {self._failed} records; the first is {self._first_error}")

    def _check_names(self) -> None:
        """Raise ConfigurationError for a name that no record has, before any record is read."""
        bound = set(_BOUND.findall(self._text))
        for name in self._program.variables():
            if name not in _READERS and name not in bound:
                problem = f"there is no {name!r}; a record has {', '.join(_READERS)}"
                word = re.search(rf"\b{re.escape(name)}\b", self._text)
                raise _marked(self._text, 1 if word is None else word.start() + 1, problem)
        unknown = [_unknown_function(self._program, samples) for samples in _SAMPLES]
        if unknown[0] and all(name == unknown[0] for name in unknown):
            word = re.search(rf"\b{re.escape(unknown[0])}\b", self._text)
            column = 1 if word is None else word.start() + 1
            raise _marked(self._text, column, f"there is no function {unknown[0]!r}")


def _unknown_function(program: Any, samples: Mapping[str, object]) -> str | None:
    """Return the function that CEL does not know with these values, if there is one."""
    try:
        program.execute(samples)
    except RuntimeError as error:
        unknown = _UNKNOWN.search(str(error))
        return None if unknown is None else unknown[1]
    except (LookupError, TypeError, ValueError, ArithmeticError):
        pass  # it depends on the values of records
    return None


def _reason(error: Exception, names: Mapping[str, object]) -> str:
    """Say why an expression has no result. CEL calls a function unknown that does not take null, or another type."""
    unknown = _UNKNOWN.search(str(error))
    if unknown is None:
        return str(error).partition(". ")[0]
    nulls = [name for name, value in names.items() if value is None]
    cause = f"{' and '.join(nulls)} is null" if nulls else "one may be null or of another type"
    return f"the function {unknown[1]!r} does not take its arguments: {cause}"


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(min(max(milliseconds, 0), _LONGEST_TIME) / 1000, UTC)


_READERS: dict[str, Callable[[Batch, Cell, Cell, int], object]] = {
    "topic": lambda batch, key, value, index: batch.topic,
    "partition": lambda batch, key, value, index: batch.partition,
    "offset": lambda batch, key, value, index: batch.offsets[index],
    "timestamp": lambda batch, key, value, index: batch.timestamps[index],
    "time": lambda batch, key, value, index: _time(batch.timestamps[index]),
    "key": lambda batch, key, value, index: _object(key, is_json=False),
    "value": lambda batch, key, value, index: _object(value, is_json=True),
    "headers": lambda batch, key, value, index: {header.key: _text(header.value) for header in batch.headers[index]},
}
"""The names that an expression may use. Only those that it uses are read: a value may take long to parse."""

_SAMPLES: tuple[dict[str, object], ...] = (
    dict.fromkeys(_READERS, ""),
    {**dict.fromkeys(_READERS, ""), "partition": 0, "offset": 0, "timestamp": 0, "time": _time(0), "headers": {}},
)
"""Values with which an expression is tried. CEL calls a function unknown too if it takes other types."""


def _wrong(text: str, message: str) -> ConfigurationError:
    position = _POSITION.search(message)
    if position is None:
        return ConfigurationError(f"--where must be an expression of CEL, got {text!r}: {message.splitlines()[0]}")
    problem = position[3].partition(" expecting ")[0].replace("'<EOF>'", "the end")
    lines = text.splitlines() or [""]
    line = lines[min(int(position[1]), len(lines)) - 1]
    return _marked(line, int(position[2]), problem)


def _marked(text: str, column: int, problem: str) -> ConfigurationError:
    """Return the error for a mistake at a column, from 1 on, with a mark before that place."""
    column = min(max(column, 1), len(text) + 1)
    place = f"{text[: column - 1]} >>>{text[column - 1 :]}"
    return ConfigurationError(f"--where is wrong at character {column}: {problem}; here: {place}")


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise ConfigurationError(f"{must_be('--grep', 'a regular expression', text)}: {error}") from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise ConfigurationError(must_be("--with-header", "NAME or NAME=VALUE", text))
    return name, value.encode() if equals else None


def _has(headers: Sequence[Header], name: str, value: bytes | None) -> bool:
    return any(header.key == name and (value is None or header.value == value) for header in headers)


def _bytes(cell: Cell) -> bytes | None:
    return cell if cell is None or isinstance(cell, bytes) else cell.as_text()


def _object(cell: Cell, *, is_json: bool) -> object:
    """Return a key or value for an expression: as decoded, as JSON, as text, or as bytes."""
    if cell is None:
        return None
    if not isinstance(cell, bytes):
        return cell.value
    if is_json:
        try:
            value: object = json.loads(cell)
        except (ValueError, RecursionError):
            pass
        else:
            return value if isinstance(value, Mapping | list | bool | int | float | str) else None
    return _text(cell)


def _text(data: bytes | None) -> str | bytes | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return data
