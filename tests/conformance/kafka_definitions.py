"""Kafka's own message definitions, read from the first place that has them.

``KAFKA_MESSAGES`` names a directory with the JSON files or a kafka-clients jar (which has them in ``common/message``).
Without it, the definitions come from the jar of the newest Kafka of the end-to-end tests; Maven fetches it once.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.real.jvm import jars, java_problem
from tests.real.releases import NEWEST


def source() -> Path | None:
    """Return the path of the definitions, or None. A ``KAFKA_MESSAGES`` that does not exist is an error."""
    named = os.environ.get("KAFKA_MESSAGES")
    if named:
        if not Path(named).exists():
            raise FileNotFoundError(f"KAFKA_MESSAGES={named} does not exist")
        return Path(named)
    if java_problem() is not None:
        return None
    return jars(NEWEST) / f"kafka-clients-{NEWEST}.jar"


@cache
def definitions() -> Mapping[str, Any]:
    """Return all definitions by name. Skips the test if there are none."""
    where = source()
    if where is None:
        pytest.skip(
            "CONFORMANCE NOT CHECKED: no message definitions. Set KAFKA_MESSAGES to a kafka-clients jar, or to a "
            "directory with the JSON files that it has in common/message"
        )
    texts = _texts_of_jar(where) if where.is_file() else [path.read_text() for path in sorted(where.glob("*.json"))]
    parsed = [json.loads(without_comments(text)) for text in texts]
    return {definition["name"]: definition for definition in parsed}


def _texts_of_jar(jar: Path) -> list[str]:
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        return [archive.read(name).decode() for name in names]


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*')


def without_comments(text: str) -> str:
    """Remove the ``//`` comments of Kafka's JSON. ``//`` inside a string is not a comment."""
    return _TOKEN.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
