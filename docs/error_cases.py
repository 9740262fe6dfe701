"""The cases of ``docs/errors.md``: functions that cause an error as a user would.

The page shows the code of a case, its error, and the advice. ``make_errors.py`` writes the page.
"""

from __future__ import annotations

import asyncio
import inspect
import textwrap
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from error_servers import (
    damage_a_batch,
    http_server_on_a_port,
    listener_that_refuses_logins,
    tls_server_on_a_port,
    without_cramjam,
)

from aiokafka_lite import (
    Admin,
    Consumer,
    EmbeddedCluster,
    JsonDeserializer,
    OffsetAndMetadata,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import FindCoordinatorRequest

Run = Callable[[EmbeddedCluster, str], Awaitable[object]]


class Case(NamedTuple):
    """An error: its place on the page, the code that causes it, and what to do."""

    part: str
    title: str
    run: Run
    advice: str
    settings: dict[str, Any]

    @property
    def code(self) -> str:
        """The lines of the function."""
        lines = inspect.getsource(self.run).splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("async def"))
        return textwrap.dedent("\n".join(lines[first + 1 :])).strip("\n")


CASES: list[Case] = []


def case(part: str, title: str, advice: str, **settings: Any) -> Callable[[Run], Run]:
    """Add a function to the page. ``settings`` are those of the cluster."""

    def add(run: Run) -> Run:
        CASES.append(Case(part, title, run, inspect.cleandoc(advice), settings))
        return run

    return add


REACHING = "Reaching the cluster"


@case(
    REACHING,
    "No broker answers",
    """No broker listens at the addresses in `bootstrap_servers`. Check host and port, and that the cluster is running.
    `aiokafka-lite diagnose -b HOST:PORT` tries each address. The message has the cause for each address.
    """,
)
async def no_broker(cluster: EmbeddedCluster, servers: str) -> None:
    await cluster.stop(1)
    await Producer(servers, api_timeout=5.0).start()


@case(
    REACHING,
    "The port belongs to another server",
    """The server at this port does not speak the Kafka protocol. The usual port of a broker is 9092. Web interfaces,
    REST proxies and schema registries are not brokers and have other ports.
    """,
)
async def http_server(cluster: EmbeddedCluster, servers: str) -> None:
    async with http_server_on_a_port() as address:
        await Producer(address).start()


@case(
    REACHING,
    "The port requires TLS",
    """The listener requires TLS, but the client did not use it. Set `security_protocol="SSL"`, or `"SASL_SSL"` if the
    listener also requires a login.
    """,
)
async def tls_listener(cluster: EmbeddedCluster, servers: str) -> None:
    async with tls_server_on_a_port() as address:
        await Producer(address).start()


@case(
    REACHING,
    "The port does not support TLS",
    """The listener is not encrypted, but the client uses TLS. Set `security_protocol="PLAINTEXT"` or
    `"SASL_PLAINTEXT"`, or use the port of a listener with TLS.
    """,
)
async def plain_listener(cluster: EmbeddedCluster, servers: str) -> None:
    await Producer(servers, security_protocol="SSL", api_timeout=5.0).start()


@case(
    REACHING,
    "A wrong password",
    """The user name or the password is wrong. Every character of the password counts, also a newline at the end of a
    file. The client does not retry, and no message contains the password.
    """,
)
async def wrong_password(cluster: EmbeddedCluster, servers: str) -> None:
    async with listener_that_refuses_logins() as address:
        login = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "secert"}
        await Producer(address, security_protocol="SASL_PLAINTEXT", **login).start()


@case(
    REACHING,
    "The broker is too old",
    """The operation requires a newer release of Kafka than the broker has. The message names the release.""",
    as_kafka="1.1.1",
)
async def too_old(cluster: EmbeddedCluster, servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.cluster.features()


@case(
    REACHING,
    "A broker does not respond in time",
    """No broker responded before the timeout of the call: its `timeout=` argument, else `api_timeout`.
    `print(admin.diagnose())` shows which errors occurred, how often, and since when.
    """,
)
async def frozen(cluster: EmbeddedCluster, servers: str) -> None:
    async with Admin(servers) as admin:
        await cluster.freeze(1)
        await admin.topics.list(timeout=5.0)


SETTINGS = "Settings"


@case(
    SETTINGS,
    "A server without a port",
    """Write the address as `host:port`.""",
)
async def no_port(cluster: EmbeddedCluster, servers: str) -> None:
    Producer("localhost")


@case(
    SETTINGS,
    "A setting with a wrong value",
    """The constructor checks every setting. Times are in seconds, sizes in bytes; see [settings](settings.md).""",
)
async def wrong_kind(cluster: EmbeddedCluster, servers: str) -> None:
    Producer(servers, linger="5 ms")


@case(
    SETTINGS,
    "An unknown setting",
    """Names differ from those of Java's client; [settings](settings.md) lists both. Times are in seconds.""",
)
async def no_such_setting(cluster: EmbeddedCluster, servers: str) -> None:
    Consumer(servers, fetch_max_wait_ms=500)


@case(
    SETTINGS,
    "Idempotence without acks=all",
    """Idempotence requires acknowledgements of all in-sync replicas. By default, it is on exactly if `acks="all"`.""",
)
async def idempotence(cluster: EmbeddedCluster, servers: str) -> None:
    Producer(servers, acks=1, idempotence=True)


TOPICS = "Topics"


@case(
    TOPICS,
    "A topic that does not exist",
    """The name is wrong, or the topic was not created, and the brokers do not create topics automatically. The client
    retries until the timeout, because a new topic may not yet be known to every broker.
    """,
    auto_create_topics=False,
)
async def unknown_topic(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers, max_block=5.0) as producer:
        await producer.send("odrers", b"two coffees")


@case(
    TOPICS,
    "An invalid topic name",
    """A topic name consists of 1 to 249 letters, digits, dots, underscores and hyphens.""",
)
async def invalid_topic(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("my orders", b"two coffees")


@case(
    TOPICS,
    "No permission for a topic",
    """The principal lacks a permission: WRITE to produce, READ to consume, DESCRIBE to see the topic. Grant it with
    `kafka-acls.sh`. The client does not retry.
    """,
)
async def topic_authorization(cluster: EmbeddedCluster, servers: str) -> None:
    cluster.authorizer.deny_topic("orders")
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")


WRITING = "Writing"


@case(
    WRITING,
    "A value that is not bytes",
    """Without a serializer, producers accept bytes and str. Pass `value_serializer=JsonSerializer()` or a function.""",
)
async def wrong_type(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("orders", {"coffees": 2})


@case(
    WRITING,
    "A record too large for the producer",
    """Raise `max_request_size`, and `max.message.bytes` of the topic too. Or store large values outside Kafka, and send
    a reference.
    """,
)
async def too_large(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("orders", bytes(2_000_000))


@case(
    WRITING,
    "A record too large for the broker",
    """The record is larger than the topic's `max.message.bytes` or the brokers' `message.max.bytes`. The client splits
    batches that are too large, but it cannot split a single record.
    """,
    configs={"message.max.bytes": "1000"},
)
async def too_large_for_broker(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("orders", bytes(2_000))


@case(
    WRITING,
    "No room in the buffer",
    """The program produces records faster than the brokers accept them. `send_nowait` does not wait: use
    `await producer.put()`, `send` or `send_many`, which wait for room. A larger `buffer_memory` only delays the error.
    """,
)
async def buffer_full(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers, buffer_memory=2_000, linger=1.0) as producer:
        for _ in range(100):
            producer.send_nowait("orders", b"two coffees")


@case(
    WRITING,
    "Not acknowledged in time",
    """The leader was unreachable or did not respond during the whole `delivery_timeout`. The message says whether a
    request with the record was sent. If so, the record may have been written, and sending it again may duplicate it.
    """,
)
async def delivery_timeout(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers, delivery_timeout=10.0, request_timeout=5.0) as producer:
        await producer.send("orders", b"two coffees")
        await cluster.kill(1)
        await producer.send("orders", b"a cake")


@case(
    WRITING,
    "Too few replicas",
    """With `acks="all"`, at least `min.insync.replicas` replicas must be in sync. Start the brokers of the other
    replicas, or create the topic with more replicas.
    """,
    brokers=2,
    configs={"min.insync.replicas": "2"},
)
async def too_few_replicas(cluster: EmbeddedCluster, servers: str) -> None:
    await cluster.stop(3 - cluster.leader_of("orders", 0))
    async with Producer(servers, delivery_timeout=10.0, request_timeout=5.0) as producer:
        await producer.send("orders", b"two coffees")


@case(
    WRITING,
    "Two producers with one transactional id",
    """The last producer that started with this id has taken over, and no other one can write. Each instance that runs
    at the same time needs a `transactional_id` of its own.
    """,
)
async def fenced_producer(cluster: EmbeddedCluster, servers: str) -> None:
    first = Producer(servers, transactional_id="billing-1")
    second = Producer(servers, transactional_id="billing-1")
    async with first, second, first.transaction():
        await first.send("orders", b"two coffees")


@case(
    WRITING,
    "A transaction that was aborted",
    """The record is not written, because its transaction was aborted before. Repeat the transaction.""",
)
async def aborted(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers, transactional_id="billing-1", linger=1.0) as producer:
        await producer.begin_transaction()
        delivery = producer.send_nowait("orders", b"two coffees")
        await producer.abort_transaction()
        await delivery


@case(
    WRITING,
    "A codec that is not installed",
    """Snappy requires an extra. gzip, lz4 and zstd come with the package.""",
)
async def no_snappy(cluster: EmbeddedCluster, servers: str) -> None:
    with without_cramjam():
        Producer(servers, compression="snappy")


READING = "Reading"


@case(
    READING,
    "Nothing to read",
    """Pass `topics` to the consumer, or call `assign`.""",
)
async def nothing_to_read(cluster: EmbeddedCluster, servers: str) -> None:
    async with Consumer(servers) as consumer:
        await anext(consumer)


@case(
    READING,
    "A record that cannot be deserialized",
    """The position stays at this record. Call `seek` to skip it, or set `on_deserialization_error` to `"skip"`, `"raw"`
    or a function, which may store the record elsewhere.
    """,
)
async def deserialization(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")
    settings = {"topics": ["orders"], "value_deserializer": JsonDeserializer()}
    async with Consumer(servers, **settings) as consumer:
        await anext(consumer)


@case(
    READING,
    "An offset outside the log",
    """Retention has deleted the offset, or it never existed, and `auto_offset_reset="none"` does not allow a reset.
    Call `seek` with an offset in the range that the message names. With `"earliest"` or `"latest"`, the client resets
    the position itself and logs a warning.
    """,
)
async def offset_out_of_range(cluster: EmbeddedCluster, servers: str) -> None:
    async with Consumer(servers, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek(TopicPartition("orders", 0), 99)
        await anext(consumer)


@case(
    READING,
    "No position",
    """The partition has no committed offset, and `auto_offset_reset="none"` does not allow a default. Call `seek`,
    `seek_to_beginning` or `seek_to_end` for the `topic` and `partition` of the error. The class is a subclass of
    `OffsetOutOfRange`.
    """,
)
async def no_position(cluster: EmbeddedCluster, servers: str) -> None:
    async with Consumer(servers, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        await anext(consumer)


@case(
    READING,
    "A partition that does not exist",
    """The topic has fewer partitions. The error comes one to three seconds after the consumer starts, because a new
    partition may be unknown to some brokers for a moment. A `poll` with a shorter timeout returns an empty list until
    then. The other assigned partitions are read.
    """,
)
async def unknown_partition(cluster: EmbeddedCluster, servers: str) -> None:
    async with Consumer(servers) as consumer:
        consumer.assign([TopicPartition("orders", 5)])
        await anext(consumer)


@case(
    READING,
    "A corrupt batch",
    """The checksum of a batch is wrong: the batch was damaged in the network or on the broker's disk. The next read
    fetches the batch again. If the error stays, read from another replica, or `seek` past the batch.
    """,
)
async def corrupt(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")
    damage_a_batch(cluster)
    async with Consumer(servers, topics=["orders"]) as consumer:
        await anext(consumer)


GROUPS = "Groups"


@case(
    GROUPS,
    "No permission for a group",
    """The principal lacks the permission READ for the group. Grant it. The client does not retry.""",
)
async def group_authorization(cluster: EmbeddedCluster, servers: str) -> None:
    cluster.on(FindCoordinatorRequest).fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with Consumer(servers, topics=["orders"], group_id="billing") as consumer:
        await anext(consumer)


@case(
    GROUPS,
    "Two members with one instance id",
    """Another process has joined with the same `group_instance_id`, and replaces this one. Give each process its own
    id, such as its host name.
    """,
)
async def fenced_instance(cluster: EmbeddedCluster, servers: str) -> None:
    settings = {"topics": ["orders"], "group_id": "billing", "group_instance_id": "worker-1"}
    async with Consumer(servers, **settings) as older:
        await older.poll(timeout=5.0)
        async with Consumer(servers, **settings) as newer:
            await newer.poll(timeout=5.0)
            await older.poll(timeout=30.0)


@case(
    GROUPS,
    "A refused commit",
    """Another member owns the partition now, or this member never owned it. No record is lost: the owner reads from the
    last committed offset. Commit in a `RebalanceListener` before partitions are revoked; see
    [rebalancing](rebalancing.md).
    """,
)
async def commit_refused(cluster: EmbeddedCluster, servers: str) -> None:
    async with Consumer(servers, topics=["orders"], group_id="billing") as consumer:
        await consumer.poll(timeout=5.0)
        result = await consumer.commit({TopicPartition("orders", 7): OffsetAndMetadata(1)})
        result.raise_for_refused()


@case(
    GROUPS,
    "A record of a share group that took too long",
    """The client renews the lock of a record for `renew_locks_for`. The program did not acknowledge the record in that
    time, so the broker delivers it again. Raise the time, call `renew` while you work, or read fewer records at a time.
    """,
)
async def acknowledgement_refused(cluster: EmbeddedCluster, servers: str) -> None:
    settings: dict[str, Any] = {"topics": ["orders"], "group_id": "billing"}
    settings["renew_locks_for"] = 30.0
    async with ShareConsumer(servers, **settings) as consumer:
        await consumer.poll(timeout=1.0)
        await cluster.produce("orders", b"pack 17")
        (record,) = await consumer.poll(timeout=30.0)
        await asyncio.sleep(80.0)
        consumer.accept(record)
        (await consumer.commit()).raise_for_refused()


LIFETIME = "Starting, closing, event loops"


@case(
    LIFETIME,
    "Used before the start",
    """Use `async with Producer(...) as producer`, or `await producer.start()` first.""",
)
async def not_started(cluster: EmbeddedCluster, servers: str) -> None:
    producer = Producer(servers)
    await producer.send("orders", b"two coffees")


@case(
    LIFETIME,
    "Used after close",
    """The `async with` block has ended, or `close` was called. A client cannot be started again: create a new one.""",
)
async def closed(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        pass
    await producer.send("orders", b"two coffees")


@case(
    LIFETIME,
    "Closed before all records are acknowledged",
    """`close` sends the remaining records, for at most its `timeout`. Then unacknowledged records fail; they may have
    been written.
    """,
)
async def closed_early(cluster: EmbeddedCluster, servers: str) -> None:
    producer = Producer(servers)
    await producer.start()
    await cluster.freeze(1)
    delivery = producer.send_nowait("orders", b"two coffees")
    await producer.close(timeout=1.0)
    await delivery


@case(
    LIFETIME,
    "Used in another event loop",
    """A client belongs to the event loop that it was started in. `asyncio.run` creates a new loop each time: start, use
    and close a client in one `asyncio.run`. From other threads, use `asyncio.run_coroutine_threadsafe`.
    """,
)
async def wrong_loop(cluster: EmbeddedCluster, servers: str) -> None:
    async with Producer(servers) as producer:
        await asyncio.to_thread(lambda: asyncio.run(producer.send("orders", b"two coffees")))
