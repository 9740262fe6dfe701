"""Write ``docs/errors.md`` by making each error: ``python docs/make_errors.py``.

A case is a function that runs into an error as users do. What it raises, and its own lines, are what the page shows.
All run on virtual time and on clusters of their own, so that the page is the same each time; a test makes them anew.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from aiokafka_lite import (  # noqa: E402
    Admin,
    Consumer,
    EmbeddedCluster,
    ErrorCode,
    JsonDeserializer,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aiokafka_lite.aio import virtual_time  # noqa: E402
from aiokafka_lite.protocol.connection import ParsedRequest, encode_response, parse_request  # noqa: E402
from aiokafka_lite.protocol.messages import (  # noqa: E402
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka_lite.protocol.records.codecs import snappy  # noqa: E402

PAGE = ROOT / "docs" / "errors.md"

HEAD = """# Errors and what to do

Every entry was made by running the lines that it shows; `docs/make_errors.py` has them, and writes this page of what
they raise. `servers` is the address of a cluster with a topic `orders` of one partition. The classes are in the
[reference](reference.md): all of ours are `KafkaError`, and one that a broker answered is a `BrokerError` with Kafka's
`code`. What may pass by itself is tried again by the client, until the time of the call is over; the error then is a
`KafkaTimeout` that names the last cause. So there is no need to catch and repeat what is not a `KafkaTimeout`.
"""

Run = Callable[[EmbeddedCluster, str], Awaitable[object]]


class Case(NamedTuple):
    """An error: where it is on the page, how it is made, and what to do about it."""

    part: str
    title: str
    run: Run
    advice: str
    settings: dict[str, Any]

    @property
    def code(self) -> str:
        """The lines that make it."""
        lines = inspect.getsource(self.run).splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("async def"))
        body = textwrap.dedent("\n".join(lines[first + 1 :]))
        return body[body.index('"""', 3) + 3 :].strip("\n")


CASES: list[Case] = []


def case(part: str, title: str, **settings: Any) -> Callable[[Run], Run]:
    """Put a function on the page; its docstring is the advice, ``settings`` are the cluster's."""

    def add(run: Run) -> Run:
        CASES.append(Case(part, title, run, inspect.cleandoc(run.__doc__ or ""), settings))
        return run

    return add


# ---- reaching a cluster

REACHING = "Reaching the cluster"


@case(REACHING, "No broker answers")
async def no_broker(cluster: EmbeddedCluster, servers: str) -> None:
    """Nothing listens at any of `bootstrap_servers`. Look at host and port, and whether the cluster is up;
    `aiokafka-lite diagnose -b HOST:PORT` tries each address. The message has the cause for each one.
    """
    await cluster.stop(1)
    await Producer(servers, api_timeout=5.0).start()


@case(REACHING, "The port is another server's")
async def http_server(cluster: EmbeddedCluster, servers: str) -> None:
    """What answers there does not speak Kafka. 9092 is the usual port of a broker; web interfaces, REST proxies and
    schema registries have others, and are no brokers.
    """
    async with http_server_on_a_port() as address:
        await Producer(address).start()


@case(REACHING, "The port is one for TLS")
async def tls_listener(cluster: EmbeddedCluster, servers: str) -> None:
    """The listener wants TLS, and the client did not begin with it: set `security_protocol="SSL"`, or `"SASL_SSL"` if
    it also wants a login.
    """
    async with tls_server_on_a_port() as address:
        await Producer(address).start()


@case(REACHING, "The port is not one for TLS")
async def plain_listener(cluster: EmbeddedCluster, servers: str) -> None:
    """The other way round: the listener speaks plainly. Set `security_protocol="PLAINTEXT"`, or `"SASL_PLAINTEXT"`,
    or use the port of the listener that has TLS.
    """
    await Producer(servers, security_protocol="SSL", api_timeout=5.0).start()


@case(REACHING, "A wrong password")
async def wrong_password(cluster: EmbeddedCluster, servers: str) -> None:
    """The broker does not know the user, or not by this password. The password is read from where it was given, with
    every character: a newline at the end of a file counts. It is not tried again, and is in no message.
    """
    async with listener_that_refuses_logins() as address:
        login = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "secert"}
        await Producer(address, security_protocol="SASL_PLAINTEXT", **login).start()


@case(REACHING, "The broker is too old", as_kafka="1.1.1")
async def too_old(cluster: EmbeddedCluster, servers: str) -> None:
    """What was asked for came with a later Kafka than the one that was asked. The message says with which."""
    async with Admin(servers) as admin:
        await admin.cluster.features()


@case(REACHING, "An answer does not come in time")
async def frozen(cluster: EmbeddedCluster, servers: str) -> None:
    """A broker took the request and did not answer, or was not reached again, until the time of the call was over:
    `timeout=` where a call has it, `api_timeout` otherwise. `print(admin.diagnose())` says what went wrong, how often
    and since when.
    """
    async with Admin(servers) as admin:
        await cluster.freeze(1)
        await admin.topics.list(timeout=5.0)


# ---- settings

SETTINGS = "Settings"


@case(SETTINGS, "A server without a port")
async def no_port(cluster: EmbeddedCluster, servers: str) -> None:
    """Give `host:port`."""
    Producer("localhost")


@case(SETTINGS, "A setting of the wrong kind")
async def wrong_kind(cluster: EmbeddedCluster, servers: str) -> None:
    """Every setting is checked in the constructor. Times are in seconds, sizes in bytes; see [settings](settings.md).
    """
    Producer(servers, linger="5 ms")


@case(SETTINGS, "A setting that there is not")
async def no_such_setting(cluster: EmbeddedCluster, servers: str) -> None:
    """The names are Python's, not Java's; [settings](settings.md) has both. Times have no `_ms`."""
    Consumer(servers, fetch_max_wait_ms=500)


@case(SETTINGS, "Idempotence without acks of all")
async def idempotence(cluster: EmbeddedCluster, servers: str) -> None:
    """Only what all replicas have is written once. Leave `idempotence` out to have it where it can be had."""
    Producer(servers, acks=1, idempotence=True)


# ---- topics

TOPICS = "Topics"


@case(TOPICS, "A topic that does not exist", auto_create_topics=False)
async def unknown_topic(cluster: EmbeddedCluster, servers: str) -> None:
    """A typo, or nobody has created it, and the brokers do not create topics by themselves. It was looked for until
    the time was over, as a topic just created may not have come around.
    """
    async with Producer(servers, max_block=5.0) as producer:
        await producer.send("odrers", b"two coffees")


@case(TOPICS, "A name that no topic can have")
async def invalid_topic(cluster: EmbeddedCluster, servers: str) -> None:
    """Letters, digits, dot, underscore and hyphen, 249 at most."""
    async with Producer(servers) as producer:
        await producer.send("my orders", b"two coffees")


@case(TOPICS, "A topic that one may not use")
async def topic_authorization(cluster: EmbeddedCluster, servers: str) -> None:
    """The principal lacks the right: WRITE to produce, READ to consume, DESCRIBE to know of the topic. Grant it with
    `kafka-acls.sh`; the client does not try again.
    """
    cluster.authoriser.deny_topic("orders")
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")


# ---- writing

WRITING = "Writing"


@case(WRITING, "A value that is not bytes")
async def wrong_type(cluster: EmbeddedCluster, servers: str) -> None:
    """Without a serializer a producer takes bytes and str. Give it `value_serializer=JsonSerializer()`, or a
    function.
    """
    async with Producer(servers) as producer:
        await producer.send("orders", {"coffees": 2})


@case(WRITING, "A record too large for the producer")
async def too_large(cluster: EmbeddedCluster, servers: str) -> None:
    """Raise `max_request_size`, and `max.message.bytes` of the topic with it; or keep what is large elsewhere, and
    send where it is.
    """
    async with Producer(servers) as producer:
        await producer.send("orders", bytes(2_000_000))


@case(WRITING, "A record too large for the broker", configs={"message.max.bytes": "1000"})
async def too_large_for_broker(cluster: EmbeddedCluster, servers: str) -> None:
    """The topic's `max.message.bytes`, or the brokers' `message.max.bytes`, is less than the record. Batches that are
    too large are split by the client; a single record cannot be.
    """
    async with Producer(servers) as producer:
        await producer.send("orders", bytes(2_000))


@case(WRITING, "No room in the buffer")
async def buffer_full(cluster: EmbeddedCluster, servers: str) -> None:
    """Records come faster than the brokers take them. `send_nowait` does not wait: `await producer.drain()` before
    it, or use `send` or `send_many`, which wait for room. A larger `buffer_memory` only puts it off.
    """
    async with Producer(servers, buffer_memory=2_000, linger=1.0) as producer:
        for _ in range(100):
            producer.send_nowait("orders", b"two coffees")


@case(WRITING, "Not acknowledged in time")
async def delivery_timeout(cluster: EmbeddedCluster, servers: str) -> None:
    """The leader cannot be reached, or does not answer, for all of `delivery_timeout`. The record may have been
    written if a request with it was sent: the message tells. Sending it again may then write it twice.
    """
    async with Producer(servers, delivery_timeout=10.0, request_timeout=5.0) as producer:
        await producer.send("orders", b"two coffees")
        await cluster.kill(1)
        await producer.send("orders", b"a cake")


@case(WRITING, "Too few replicas", brokers=2, configs={"min.insync.replicas": "2"})
async def too_few_replicas(cluster: EmbeddedCluster, servers: str) -> None:
    """With `acks="all"`, `min.insync.replicas` of them must be in sync. Bring the brokers back that hold the others,
    or create the topic with more replicas.
    """
    await cluster.stop(3 - cluster.leader_of("orders", 0))
    async with Producer(servers, delivery_timeout=10.0, request_timeout=5.0) as producer:
        await producer.send("orders", b"two coffees")


@case(WRITING, "A codec that is not installed")
async def no_snappy(cluster: EmbeddedCluster, servers: str) -> None:
    """Snappy is an extra; gzip, lz4 and zstd come with the package."""
    with without_cramjam():
        Producer(servers, compression="snappy")


# ---- reading

READING = "Reading"


@case(READING, "Nothing to read")
async def nothing_to_read(cluster: EmbeddedCluster, servers: str) -> None:
    """Give the consumer `topics`, or call `assign`."""
    async with Consumer(servers) as consumer:
        await anext(consumer)


@case(READING, "A record that cannot be deserialized")
async def deserialization(cluster: EmbeddedCluster, servers: str) -> None:
    """The record stays next: `seek` past it, or say `on_deserialization_error="skip"`, `"raw"`, or a function that
    puts it elsewhere.
    """
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")
    async with Consumer(servers, topics=["orders"], value_deserializer=JsonDeserializer()) as consumer:
        await anext(consumer)


@case(READING, "An offset that is gone")
async def offset_out_of_range(cluster: EmbeddedCluster, servers: str) -> None:
    """Retention has deleted it, or it was never there, and `auto_offset_reset="none"` leaves to you what follows:
    `seek` within the range that the message names. With `"earliest"` or `"latest"` the client does it and logs a
    warning.
    """
    async with Consumer(servers, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek(TopicPartition("orders", 0), 99)
        await anext(consumer)


@case(READING, "A damaged batch")
async def corrupt(cluster: EmbeddedCluster, servers: str) -> None:
    """The checksum of a batch does not fit its bytes: damaged on the way, or on the broker's disk. Reading is tried
    again each time that it is asked for; if it stays, read from another replica, or `seek` past it.
    """
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")
    damage_a_batch(cluster)
    async with Consumer(servers, topics=["orders"]) as consumer:
        await anext(consumer)


# ---- groups

GROUPS = "Groups"


@case(GROUPS, "A group that one may not join")
async def group_authorization(cluster: EmbeddedCluster, servers: str) -> None:
    """The principal lacks READ on the group. Grant it; the client does not try again."""
    cluster.on(FindCoordinatorRequest).fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with Consumer(servers, topics=["orders"], group_id="billing") as consumer:
        await anext(consumer)


@case(GROUPS, "Two members with one instance id")
async def fenced_instance(cluster: EmbeddedCluster, servers: str) -> None:
    """Another process has joined as the same `group_instance_id`, and this one has to go. Each process needs an id of
    its own, such as its host's name.
    """
    settings = {"topics": ["orders"], "group_id": "billing", "group_instance_id": "worker-1"}
    async with Consumer(servers, **settings) as older:
        await older.poll(timeout=5.0)
        async with Consumer(servers, **settings) as newer:
            await newer.poll(timeout=5.0)
            await older.poll(timeout=30.0)


@case(GROUPS, "A commit that is refused")
async def commit_refused(cluster: EmbeddedCluster, servers: str) -> None:
    """The partition has gone to another member, or was never this one's. Nothing is lost: whoever has it reads from
    the last offset that was committed. Let go in `RebalanceListener`, and commit before a rebalance ends; see
    [rebalancing](rebalancing.md).
    """
    async with Consumer(servers, topics=["orders"], group_id="billing") as consumer:
        await consumer.poll(timeout=5.0)
        result = await consumer.commit({TopicPartition("orders", 7): OffsetAndMetadata(1)})
        result.raise_for_refused()


# ---- lifetime

LIFETIME = "Starting, closing, event loops"


@case(LIFETIME, "Used before the start")
async def not_started(cluster: EmbeddedCluster, servers: str) -> None:
    """Use `async with Producer(...) as producer`, or `await producer.start()` first."""
    producer = Producer(servers)
    await producer.send("orders", b"two coffees")


@case(LIFETIME, "Used after the end")
async def closed(cluster: EmbeddedCluster, servers: str) -> None:
    """The `async with` is over, or `close` was called. A client has one life: make another one."""
    async with Producer(servers) as producer:
        pass
    await producer.send("orders", b"two coffees")


@case(LIFETIME, "Closed while records are under way")
async def closed_early(cluster: EmbeddedCluster, servers: str) -> None:
    """`close` sends what is left, for as long as it is told to. What is not acknowledged then fails, and may have
    been written.
    """
    producer = Producer(servers)
    await producer.start()
    await cluster.freeze(1)
    delivery = producer.send_nowait("orders", b"two coffees")
    await producer.close(timeout=1.0)
    await delivery


@case(LIFETIME, "Used in another event loop")
async def wrong_loop(cluster: EmbeddedCluster, servers: str) -> None:
    """A client belongs to the loop that it was started in. `asyncio.run` makes a new loop each time: start, use and
    close a client within one. For other threads there is `asyncio.run_coroutine_threadsafe`.
    """
    async with Producer(servers) as producer:
        await asyncio.to_thread(lambda: asyncio.run(producer.send("orders", b"two coffees")))


# ---- what the cases need


@asynccontextmanager
async def http_server_on_a_port() -> AsyncIterator[str]:
    """A web server: it takes whatever comes for a bad request."""
    async with answering(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") as address:
        yield address


@asynccontextmanager
async def tls_server_on_a_port() -> AsyncIterator[str]:
    """A listener for TLS: it takes whatever comes for a broken handshake, and sends an alert."""
    async with answering(bytes.fromhex("15030300020246")) as address:
        yield address


@asynccontextmanager
async def listener_that_refuses_logins() -> AsyncIterator[str]:
    """A broker as far as a login that fails, in Kafka's words."""
    spoken = (ApiVersionsRequest, MetadataRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
    versions = [ApiVersion(api_key=each.api_key, min_version=0, max_version=each.versions.last) for each in spoken]
    answers = {
        ApiVersionsRequest: ApiVersionsResponse(error_code=0, api_keys=versions),
        SaslHandshakeRequest: SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]),
        SaslAuthenticateRequest: SaslAuthenticateResponse(
            error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED),
            error_message="Authentication failed: Invalid username or password",
            auth_bytes=b"",
        ),
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in answers:
            size = int.from_bytes(await reader.readexactly(4), "big")
            asked = parse_request(await reader.readexactly(size))
            assert isinstance(asked, ParsedRequest)
            writer.write(encode_response(asked.header, answers[type(asked.request)]))
        writer.close()

    async with serving(answer) as address:
        yield address


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[str]:
    """A port on which everything is answered with these bytes, and an end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        await writer.drain()
        writer.close()

    async with serving(answer) as address:
        yield address


@asynccontextmanager
async def serving(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A port of ours."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


@contextmanager
def without_cramjam() -> Iterator[None]:
    """As if the package were not installed."""
    before = sys.modules.get("cramjam")
    sys.modules["cramjam"] = None  # type: ignore[assignment]
    snappy._cramjam.cache_clear()
    try:
        yield
    finally:
        del sys.modules["cramjam"]
        if before is not None:
            sys.modules["cramjam"] = before
        snappy._cramjam.cache_clear()


def damage_a_batch(cluster: EmbeddedCluster) -> None:
    """Turn over a bit of the last record in the log, as a broken disk does."""
    batches = cluster.nodes[1].replica_manager.require(TopicPartition("orders", 0)).log.segments[0].batches
    data = bytearray(batches[-1].data)
    data[-1] ^= 1
    batches[-1] = batches[-1]._replace(data=bytes(data))


# ---- the page


def error_of(case: Case) -> Exception:
    """Run a case on a cluster of its own; what it raises."""

    async def run() -> Exception:
        async with EmbeddedCluster(seed=1, **{"brokers": 1} | case.settings) as cluster:
            await cluster.create_topic("orders", partitions=1, replication_factor=len(cluster.nodes))
            try:
                await case.run(cluster, cluster.bootstrap_servers)
            except Exception as error:  # noqa: BLE001 - it is what the page is about
                return error
        raise AssertionError(f"{case.title}: no error")

    return virtual_time.run(run())


_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_VARYING = re.compile(r"(?<=aiokafka-lite-)[0-9a-f-]{36}|(?<=0x)[0-9a-f]{8}")  # member ids, checksums


def shown(error: Exception) -> str:
    """The error as a traceback ends, without what differs from run to run."""
    text = f"{type(error).__name__}: {error}"
    return _VARYING.sub("…", _ADDRESS.sub("localhost:9092", text))


def section(case: Case, error: Exception) -> str:
    """One entry."""
    message = "\n".join(textwrap.wrap(shown(error), 110, break_long_words=False, break_on_hyphens=False))
    code = f"```py\n{case.code}\n```"
    advice = "\n".join(textwrap.wrap(case.advice, 120, break_long_words=False, break_on_hyphens=False))
    return f"### {case.title}\n\n{code}\n\n```text\n{message}\n```\n\n{advice}\n"


def page(errors: Iterable[Exception]) -> str:
    """The whole page; ``errors`` are those of ``CASES``."""
    parts = [HEAD]
    last = ""
    for case, error in zip(CASES, errors, strict=True):
        if case.part != last:
            last = case.part
            parts.append(f"## {case.part}\n")
        parts.append(section(case, error))
    return "\n".join(parts)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    PAGE.write_text(page(map(error_of, CASES)), encoding="utf-8")
