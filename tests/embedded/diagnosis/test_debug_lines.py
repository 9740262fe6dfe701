"""The DEBUG log names each change of connections, coordinators and fetch sessions."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from aiokafka_lite import Consumer, EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import FetchRequest, FetchResponse, OffsetCommitRequest


async def test_changes_of_connections_coordinators_and_fetch_sessions_are_logged(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="aiokafka_lite")
    await cluster.produce("orders", b"a", partition=0)
    where = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
    async with Consumer(topics=["orders"], group_id="billing", connections_max_idle=30.0, **where) as consumer:
        assert len(await consumer.poll(timeout=30.0)) == 1
        cluster.on(OffsetCommitRequest).fail(ErrorCode.NOT_COORDINATOR)
        consumer.mark()
        await consumer.commit()
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        lost = FetchResponse(error_code=code, session_id=0, responses=[])
        cluster.on(FetchRequest, times=1).answer(lambda request: lost)
        await asyncio.sleep(120.0)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    for pattern in (
        r"connecting to broker 1 at .* for fetch requests",
        r"<Connection broker=1 .*> is open",
        r"dropped the coordinator of .*billing.* from the cache: ",
        r"broker 1 ended the fetch session: FETCH_SESSION_ID_NOT_FOUND",
        r"closing <Connection .*>: it was idle for 30 s",
        r"<Connection broker=1 .*>: closed here",
    ):
        assert any(re.match(pattern, line) for line in lines), pattern
