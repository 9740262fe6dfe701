"""``aiokafka-lite consume --share``: prints records of a share group, and accepts each of them after it was printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from ..consumer.columns import Batch
from ..errors import ConfigurationError
from ..types import ShareRecord
from .consume import ConsumeJob, check_line, decoder_of
from .terminal.connection import ConnectionOptions
from .terminal.descriptors import Writer, while_read
from .terminal.formats import formatter
from .terminal.progress import progress
from .terminal.run import log_warnings
from .terminal.start import started
from .terminal.topic_names import check_topics

if TYPE_CHECKING:
    from .terminal.decoding import Columns, Decoder

BATCH = 500

WAIT = 60.0
"""Seconds that one call waits for records. The command itself repeats the call without limit."""


async def consume_share(connection: ConnectionOptions, job: ConsumeJob) -> int:
    """Print records until a limit or a signal. The other records are released for any member of the group."""
    async with decoder_of(connection, job) as decoder:
        return await _consume(connection, job, decoder)


async def _consume(connection: ConnectionOptions, job: ConsumeJob, decoder: Decoder | None) -> int:
    group = _checked(job, connection.group(job.group))
    await check_topics(connection, job.topics, may_create=False)
    print_batch = formatter(job.line)
    writer = Writer(sys.stdout.fileno())
    count = 0
    async with started(connection.share_consumer(group, job.topics)) as consumer:
        log_warnings()
        is_wanted = not sys.stdout.isatty()
        with (
            progress("consumed", job.max_records, in_bytes=False, is_wanted=is_wanted) as bar,
            while_read(sys.stdout.fileno()),
        ):
            while job.max_records is None or count < job.max_records:
                room = BATCH if job.max_records is None else min(BATCH, job.max_records - count)
                records = await consumer.poll(room, WAIT)
                lines = [await _printed(batch, print_batch, decoder) for batch in _batches(records)]
                try:
                    await writer.write(b"".join(lines))
                finally:
                    if not writer.is_stuck:
                        for record in records:
                            consumer.accept(record)
                count += len(records)
                bar.advance(len(records), count)
        (await consumer.commit()).raise_for_refused()
    return 0


async def _printed(
    batch: Batch, print_batch: Callable[[Batch, Columns | None], bytes], decoder: Decoder | None
) -> bytes:
    return print_batch(batch, None if decoder is None else await decoder.decode(batch))


def _checked(job: ConsumeJob, group: str | None) -> str:
    """Check the options, and return the group to join. Raises ConfigurationError for what share groups lack."""
    options = {
        "--regex": job.regex,
        "--partition": job.partitions,
        "--from": job.start,
        "--until": job.until,
        "--isolation-level": job.settings,
        "--where, --grep and --with-header": job.search,
    }
    excluded = ", ".join(name for name, value in options.items() if value)
    if excluded:
        raise ConfigurationError(
            f"--share excludes {excluded}: a share group has a start and an isolation level of its own, see"
            " share.auto.offset.reset and share.isolation.level in aiokafka-lite configs describe group"
        )
    if not job.topics:
        raise ConfigurationError("--share requires topics; see aiokafka-lite consume --help")
    if group is None:
        raise ConfigurationError("--share requires --group, the name of a share group")
    check_line(job.line)
    return group


def _batches(records: Sequence[ShareRecord[bytes, bytes]]) -> Iterator[Batch]:
    """Yield the records as columns: a batch for each run of records of the same partition."""
    for (topic, partition), run in groupby(records, attrgetter("topic", "partition")):
        partition_records = list(run)
        yield Batch(
            topic=topic,
            partition=partition,
            timestamp_type=partition_records[0].timestamp_type,
            leader_epoch=partition_records[0].leader_epoch,
            offsets=[record.offset for record in partition_records],
            timestamps=[record.timestamp for record in partition_records],
            keys=[record.key for record in partition_records],
            values=[record.value for record in partition_records],
            headers=[record.headers for record in partition_records],
        )
