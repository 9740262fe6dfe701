"""``aiokafka-lite produce``: lines in, records out."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import ExitStack

from aiokafka_lite.errors import ConfigurationError, KafkaError
from aiokafka_lite.types import Header

from .connection import Connection
from .lines import Lines
from .output import Facts, Output
from .progress import progress
from .running import log_warnings, say
from .sending import Sending, Wanted

LINGER = 0.005
BATCH_SIZE = 256 * 1024


def parse_header(text: str) -> Header:
    """``NAME=VALUE``; raises ConfigurationError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(f"header={text!r}: use NAME=VALUE")
    return Header(name, value.encode())


async def produce(connection: Connection, output: Output, wanted: Wanted) -> int:
    """Send every line, and return when all of them are acknowledged. Raises what the first that failed failed with."""
    with ExitStack() as stack:
        descriptor = sys.stdin.fileno()
        total = None
        if wanted.file is not None:
            descriptor = stack.enter_context(wanted.file.open("rb", buffering=0)).fileno()
            total = os.fstat(descriptor).st_size or None
        began = time.perf_counter()
        producer = connection.producer({"linger": LINGER, "batch_size": BATCH_SIZE}, wanted.settings)
        shown = stack.enter_context(progress("producing", total, is_wanted=not os.isatty(descriptor)))
        sending = Sending(producer, wanted, shown)
        try:
            async with producer:
                await producer.partitions_for(wanted.topic)
                log_warnings()
                await sending.send_all(Lines(descriptor, producer.config.max_request_size))
        except (asyncio.CancelledError, KafkaError):
            if sending.read:
                say(f"stopped after line {sending.read}: {sending.acknowledged} records were acknowledged")
            raise
    if output.as_json:
        seconds = round(time.perf_counter() - began, 3)
        output.show(
            Facts({"topic": wanted.topic, "records": sending.acknowledged, "bytes": sending.size, "seconds": seconds})
        )
    return 0
