"""``aiokafka-lite produce``: writes lines as records."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ..arguments import must_be, plural
from ..errors import ConfigurationError, KafkaError
from ..types import Header
from .sending import Encoders, ProduceJob, Sending, WrittenOffsets
from .terminal.connection import ConnectionOptions
from .terminal.lines import Lines
from .terminal.output import Cell, Facts, Output
from .terminal.progress import progress
from .terminal.registry import new_registry, read_schema
from .terminal.run import log_warnings, say
from .terminal.start import started
from .terminal.topic_names import check_topics

if TYPE_CHECKING:
    from ..schemas import RegisteredSchema, SchemaRegistryClient

LINGER = 0.005
BATCH_SIZE = 256 * 1024


def parse_header(text: str) -> Header:
    """Parse a header given as ``NAME=VALUE``; the value may be empty. Raises ConfigurationError for any other form."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(must_be("--header", "NAME=VALUE", text))
    return Header(name, value.encode())


async def _encoders(connection: ConnectionOptions, job: ProduceJob) -> Encoders:
    """Find or register the schemas, and return the functions that write with them. Raises KafkaError."""
    if not job.schemas:
        return Encoders()
    from ..schemas.json_forms import JsonForms

    async with new_registry(connection, job.schemas.registry) as registry:
        forms = JsonForms(registry)

        async def encoder(part: str, choice: str | None, message: str | None) -> Callable[[bytes], bytes] | None:
            if choice is None:
                return None
            registered = await _registered(registry, f"{job.topic}-{part}", choice)
            write = await forms.writer(registered, message)
            return lambda data: write(_parsed(data))

        schemas = job.schemas
        return Encoders(await encoder("key", schemas.key, None), await encoder("value", schemas.value, schemas.message))


async def _registered(registry: SchemaRegistryClient, subject: str, choice: str) -> RegisteredSchema:
    """Return the schema of an option: the newest of the subject, that of an id, or that of a file."""
    from ..schemas import RegisteredSchema

    if choice == "latest":
        return await registry.latest(subject)
    if choice.isdecimal():
        return RegisteredSchema(subject, int(choice), await registry.by_id(int(choice)))
    return await registry.register(subject, read_schema(Path(choice), None))


def _parsed(data: bytes) -> object:
    """Parse the JSON of a key or value. Raises ValueError."""
    try:
        return json.loads(data.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"must be JSON for its schema; character {error.pos + 1}: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"must be JSON for its schema: {error}") from None


async def produce(connection: ConnectionOptions, output: Output, job: ProduceJob) -> int:
    """Send all lines, and return when all are acknowledged. Raises the error of the first line that failed."""
    with ExitStack() as stack:
        source = sys.stdin if job.file is None else stack.enter_context(job.file.open("rb", buffering=0))
        descriptor = source.fileno()
        total = None if job.file is None else os.fstat(descriptor).st_size or None
        began = time.perf_counter()
        producer = connection.producer({"linger": LINGER, "batch_size": BATCH_SIZE}, job.settings)
        shown = stack.enter_context(progress("producing", total, is_wanted=not os.isatty(descriptor)))
        offsets = WrittenOffsets()
        encoders = await _encoders(connection, job)
        sending = Sending(producer, job, shown, offsets if output.as_json else None, encoders)
        await check_topics(connection, [job.topic], may_create=connection.may_create_topics(), max_partitions=1)
        try:
            async with started(producer):
                sending.expect_partitions(len(await producer.partitions_for(job.topic)))
                log_warnings()
                await sending.send_all(Lines(descriptor, producer.config.max_request_size))
        except (asyncio.CancelledError, KafkaError):
            if sending.read:
                say(f"stopped after line {sending.read}; acknowledged: {plural(sending.acknowledged, 'record')}")
            raise
    if output.as_json:
        seconds = round(time.perf_counter() - began, 3)
        facts: dict[str, Cell] = {"topic": job.topic, "records": sending.acknowledged, "bytes": sending.size}
        output.show(Facts({**facts, "seconds": seconds, "partitions": offsets.as_objects()}))
    return 0
