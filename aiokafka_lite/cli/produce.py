"""``aiokafka-lite produce``: writes lines as records."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import ExitStack

from ..arguments import must_be, plural
from ..errors import ConfigurationError, KafkaError
from ..types import Header
from .sending import ProduceJob, Sending
from .terminal.connection import ConnectionOptions
from .terminal.lines import Lines
from .terminal.output import Facts, Output
from .terminal.progress import progress
from .terminal.run import log_warnings, say
from .terminal.start import started
from .terminal.topic_names import check_topics

LINGER = 0.005
BATCH_SIZE = 256 * 1024


def parse_header(text: str) -> Header:
    """Parse a header given as ``NAME=VALUE``; the value may be empty. Raises ConfigurationError for any other form."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(must_be("--header", "NAME=VALUE", text))
    return Header(name, value.encode())


async def produce(connection: ConnectionOptions, output: Output, job: ProduceJob) -> int:
    """Send all lines, and return when all are acknowledged. Raises the error of the first line that failed."""
    with ExitStack() as stack:
        source = sys.stdin if job.file is None else stack.enter_context(job.file.open("rb", buffering=0))
        descriptor = source.fileno()
        total = None if job.file is None else os.fstat(descriptor).st_size or None
        began = time.perf_counter()
        producer = connection.producer({"linger": LINGER, "batch_size": BATCH_SIZE}, job.settings)
        shown = stack.enter_context(progress("producing", total, is_wanted=not os.isatty(descriptor)))
        sending = Sending(producer, job, shown)
        await check_topics(connection, [job.topic], may_create=connection.may_create_topics(), max_partitions=1)
        try:
            async with started(producer):
                await producer.partitions_for(job.topic)
                log_warnings()
                await sending.send_all(Lines(descriptor, producer.config.max_request_size))
        except (asyncio.CancelledError, KafkaError):
            if sending.read:
                say(f"stopped after line {sending.read}; acknowledged: {plural(sending.acknowledged, 'record')}")
            raise
    if output.as_json:
        seconds = round(time.perf_counter() - began, 3)
        output.show(
            Facts({"topic": job.topic, "records": sending.acknowledged, "bytes": sending.size, "seconds": seconds})
        )
    return 0
