"""The objects of Python that JSON can hold. ``json.dumps`` would change some others: the key 1 becomes "1"."""

from __future__ import annotations

import json
import math
from datetime import date, time
from decimal import Decimal
from typing import Any

from .mismatch import Mismatch, wrong

_WHAT = "a str, a number, a bool, None, a list or a dict"


def on_one_line(value: object) -> bytes:
    """Return a value of ``JsonForms`` as JSON on one line.

    Other writers of JSON put NaN, infinity and half a surrogate pair into records. The numbers become the texts of
    Avro's JSON, and the half pair stays an escape: UTF-8 cannot hold it.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_without_nan(value), separators=(",", ":")).encode()


def _without_nan(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list | tuple) else value


def check_json(data: object) -> None:
    """Raise Mismatch, with the place, for data that JSON cannot hold as it is."""
    try:
        _check(data)
    except RecursionError:
        raise Mismatch("is nested too deeply, or contains itself") from None


# Hot: runs for each value of each record.
def _check(data: Any) -> None:
    if isinstance(data, str):
        if not data.isascii():
            _check_text(data)
    elif isinstance(data, float):
        if not math.isfinite(data):
            raise wrong("a finite number: JSON has no NaN and no infinity", data)
    elif isinstance(data, dict):
        key: Any = ""
        try:
            for key, item in data.items():
                if not isinstance(key, str):
                    raise wrong("a dict whose keys are of type str", data)
                if not key.isascii():
                    _check_text(key)
                _check(item)
        except Mismatch as error:
            raise (error.inside(key, is_key=not key.isidentifier()) if isinstance(key, str) else error) from None
    elif isinstance(data, list | tuple):
        number = 0
        try:
            for number, item in enumerate(data):  # noqa: B007 - the error needs it
                _check(item)
        except Mismatch as error:
            raise error.inside(number) from None
    elif data is not None and not isinstance(data, int):  # a bool is an int
        raise wrong(_WHAT, data, _advice(data))


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise wrong("a str that UTF-8 can hold", text) from None


def _advice(data: object) -> str:
    if isinstance(data, Decimal):
        return "a Decimal is no JSON: pass str(...), or float(...) if digits may be lost, for example in to_dict"
    if isinstance(data, date | time):
        return "JSON has no dates and times: pass isoformat(), for example in to_dict"
    if hasattr(data, "__dataclass_fields__"):
        return "for a dataclass, pass to_dict=dataclasses.asdict to the serializer"
    return "for other objects, pass a function to_dict to the serializer"
