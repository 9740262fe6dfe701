"""Each value for each type of Avro: this package refuses it, or writes the bytes of Java's serializer.

``java/avro_table.json`` has the table, and ``java/AvroTable.java`` is the program that filled in Java's results.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite.schemas.avro_names import resolved
from aiokafka_lite.schemas.avro_writing import writer

FOLDER = Path(__file__).parent / "java"
TABLE: list[dict[str, Any]] = json.loads((FOLDER / "avro_table.json").read_text())

PYTHON: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("null", "bool", "int", "long", "string", "enum"), lambda content: content),
    "double": float,
    **dict.fromkeys(("bytes", "fixed"), bytes.fromhex),
    "decimal": Decimal,
    "uuid": uuid.UUID,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    **dict.fromkeys(("instant", "local"), datetime.fromisoformat),
    "list": lambda content: [value_of(item) for item in content],
    **dict.fromkeys(("map", "record"), lambda content: {key: value_of(item) for key, item in content.items()}),
}


def value_of(tagged: dict[str, Any]) -> Any:
    """Return the object of Python for a value such as ``{"long": 5}``."""
    ((tag, content),) = tagged.items()
    return PYTHON[tag](content)


def is_written(row: dict[str, Any]) -> bool:
    """Return whether Java's serializer wrote bytes."""
    return all(character in "0123456789abcdef" for character in row["java"])


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{json.dumps(row['schema'])[-60:]}-{json.dumps(row['value'])}")
def test_a_value_is_refused_or_written_as_java_writes_it(row: dict[str, Any]) -> None:
    write = writer(resolved(row["schema"]))
    value = value_of(row["value"])
    if not is_written(row) or row.get("ours", "").startswith("refused"):
        with pytest.raises(ValueError, match=r" must be | is not a field of | is missing"):
            write(value)
    elif "ours" in row:
        assert write(value).hex() != row["java"]
    else:
        assert write(value).hex() == row["java"]


@pytest.mark.real
def test_the_table_has_the_results_of_javas_library() -> None:
    pyspark = pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    jars = Path(pyspark.__file__).parent / "jars"
    command = ["java", "-cp", f"{jars}/*", str(FOLDER / "AvroTable.java")]
    text = (FOLDER / "avro_table.json").read_text()
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == TABLE
