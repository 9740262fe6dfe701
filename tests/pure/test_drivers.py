"""The drivers of PostgreSQL: which errors pass. ``tests/end_to_end`` has the tests with a database."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.processing.outbox import PostgresOutbox
from aiokafka_lite.processing.stores import PostgresStore
from aiokafka_lite.processing.stores.drivers import is_transient


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 5432)"),
        ConnectionError("unexpected connection_lost() call"),
        FileNotFoundError(2, "No such file or directory"),  # of a socket, while the server is restarted
        TimeoutError(),
    ],
)
def test_a_lost_connection_passes(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "prices.csv"),
        PermissionError(13, "Permission denied", "/etc/prices.csv"),
    ],
)
def test_an_error_about_a_file_does_not_pass(error: Exception) -> None:
    assert not is_transient(error)


@pytest.mark.parametrize("make", [PostgresOutbox, PostgresStore])
@pytest.mark.parametrize("table", ["a" * 64, "shop." + "a" * 59, "1st", "a.b.c", "", 5])
def test_a_name_that_is_none_of_a_table_is_refused(make: Any, table: object) -> None:
    engines = pytest.importorskip("sqlalchemy.ext.asyncio")
    with pytest.raises(ConfigurationError, match=r"table must be a name such as .*, of at most 63 bytes, got "):
        make(engines.create_async_engine("postgresql+asyncpg://", poolclass=None), table=table)
