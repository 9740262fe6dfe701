"""Every way to be secure, on real brokers and on the embedded one.

An accepted client reads and writes. A refused client gets an error with the reason and the setting to change.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Consumer, ConsumerGroup, ConsumerGroupHandler, Producer, TopicPartition
from aiokafka_lite.admin import Admin, OffsetSpec
from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.errors import AuthenticationError, ConnectionLost, KafkaError, KafkaTimeout, ProtocolError
from aiokafka_lite.protocol.connection import ClientProtocol
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from aiokafka_lite.settings.properties import client_settings, read_properties
from tests.end_to_end.other_clients import write_by
from tests.end_to_end.secured_kafka import (
    WAYS,
    Secured,
    oauth,
    only_on_apache_kafka,
    only_on_the_newest,
    over_tls,
    sasl,
    tls,
    with_oauth,
    with_tls,
)
from tests.real.jvm import run_tool
from tests.real.secured_broker import (
    KEY_PASSWORD,
    PLAIN_PASSWORD,
    PLAIN_USER,
    SESSION_MILLISECONDS,
    USERS,
    token,
)
from tests.waiting import DEADLINE, error_of

_topics = count(1)


def settings_of(kafka: Secured, way: str) -> dict[str, Any]:
    certificates = kafka.certificates
    match way:
        case "PLAIN":
            return sasl(kafka, "PLAIN", PLAIN_USER, PLAIN_PASSWORD)
        case "SCRAM-SHA-256" | "SCRAM-SHA-512":
            return sasl(kafka, way, "alice", USERS["alice"])
        case "OAUTHBEARER":
            return oauth(kafka, token)
        case "TLS":
            return tls(kafka)
        case "TLS with a ready context":
            context = ssl.create_default_context(cafile=certificates.ca)
            servers = kafka.servers("TLS")
            return {"bootstrap_servers": servers, "security_protocol": "SSL", "ssl_context": context}
        case "mutual TLS":
            return tls(kafka, "MUTUAL", ssl_certfile=certificates.client)
        case "mutual TLS with an encrypted key":
            pem = Path(certificates.client).read_text()
            key = {"ssl_keyfile": certificates.client_key, "ssl_key_password": KEY_PASSWORD}
            return tls(kafka, "MUTUAL", ssl_certfile=pem, **key)
        case _:
            return over_tls(kafka)


async def test_an_authenticated_client_writes_reads_and_administers(
    secured: Secured, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = settings_of(secured, way)
    topic = f"way-{next(_topics)}"
    async with Producer(**settings) as producer:
        written = await producer.send_many(topic, [b"%d" % number for number in range(100)])
    assert [metadata.offset for metadata in written] == list(range(100))
    async with Consumer(topics=[topic], group_id=topic, **settings) as consumer:
        read = [(await anext(consumer)).value for _ in range(100)]
    assert read == [b"%d" % number for number in range(100)]
    async with Admin(**settings) as admin:
        assert topic in [listed.name for listed in await admin.topics.list()]
    for secret in (*USERS.values(), PLAIN_PASSWORD, KEY_PASSWORD, token()[:10], "PRIVATE KEY"):
        assert secret not in caplog.text


@only_on_the_newest
async def test_a_group_with_a_handler_is_let_in_too(secured: Secured) -> None:
    settings = over_tls(secured)
    topic = f"group-{next(_topics)}"
    async with Producer(**settings) as producer:
        await producer.send(topic, b"value")
    group = ConsumerGroup(group_id=topic, **settings)
    values = []

    class Handler(ConsumerGroupHandler[Any, Any]):
        async def consume_claim(self, session: Any, claim: Any) -> None:
            async for record in claim:
                values.append(record.value)
                closing.append(asyncio.create_task(group.close()))

    closing: list[asyncio.Task[None]] = []
    await group.consume([topic], Handler())
    await asyncio.gather(*closing)
    assert values == [b"value"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_names_are_escaped_and_passwords_taken_as_they_are(secured: Secured, mechanism: str) -> None:
    (name, password) = list(USERS.items())[1]
    async with Admin(**sasl(secured, mechanism, name, password)) as admin:
        assert await admin.topics.list() is not None


async def ended(settings: dict[str, Any]) -> KafkaError:
    """Return the error of a client's start, which must fail."""
    admin = Admin(**settings, api_timeout=30.0)
    with pytest.raises(KafkaError) as failed:
        await admin.start()
    with pytest.raises(KafkaError):
        await admin.close()
    return failed.value


async def timed_out(settings: dict[str, Any], cause: str) -> KafkaError:
    """Return the error of a start. Its timeout leaves it the time to find this cause."""
    return await error_of(lambda timeout: Admin(**settings, api_timeout=timeout).start(), re.escape(cause))


REFUSED = [
    ("PLAIN", PLAIN_USER, "hunter2", "refused the login by PLAIN as 'bob': Authentication failed"),
    ("SCRAM-SHA-256", "alice", "hunter2", "refused the login by SCRAM-SHA-256 as 'alice': "),
    ("SCRAM-SHA-512", "alice", "hunter2", "refused the login by SCRAM-SHA-512 as 'alice': "),
    ("SCRAM-SHA-512", "mallory", "hunter2", "refused the login by SCRAM-SHA-512 as 'mallory': "),
]


@pytest.mark.parametrize("mechanism, username, password, says", REFUSED)
async def test_a_wrong_name_or_password_is_refused_at_once_and_once(
    secured: Secured,
    mechanism: str,
    username: str,
    password: str,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with asyncio.timeout(DEADLINE):
        error = await ended(sasl(secured, mechanism, username, password))
    assert isinstance(error, AuthenticationError)
    assert re.match(rf"127\.0\.0\.1:\d+ {re.escape(says)}", str(error))
    attempts = [record for record in caplog.records if "next attempt in" in record.message]
    assert len(attempts) == 1
    assert password not in caplog.text + str(error)


async def test_a_mechanism_that_is_off_is_named_with_those_that_are_on(secured: Secured) -> None:
    error = await ended(sasl(secured, "PLAIN", PLAIN_USER, PLAIN_PASSWORD, "SCRAMONLY"))
    assert isinstance(error, AuthenticationError)
    assert "does not offer sasl_mechanism='PLAIN' on this port; it offers SCRAM-SHA-512" in str(error)


@with_oauth
async def test_a_token_that_has_expired_is_refused_with_the_reason(secured: Secured) -> None:
    error = await ended(oauth(secured, lambda: token(-600)))
    assert isinstance(error, AuthenticationError)
    assert "refused the login by OAUTHBEARER" in str(error)
    assert "invalid_token" in str(error)


async def test_a_login_at_a_port_without_one_is_refused(secured: Secured) -> None:
    settings = sasl(secured, "PLAIN", PLAIN_USER, PLAIN_PASSWORD)
    error = await ended({**settings, "bootstrap_servers": secured.bootstrap_servers})
    assert isinstance(error, AuthenticationError)
    assert "accepts no login on this port: set security_protocol to PLAINTEXT" in str(error)


async def test_no_login_at_a_port_that_wants_one_says_what_to_set(secured: Secured) -> None:
    says = 'at the first request; if it requires a login, set security_protocol to "SASL_PLAINTEXT"'
    error = await timed_out({"bootstrap_servers": secured.servers("SASL")}, says)
    assert isinstance(error, KafkaTimeout)
    assert says in str(error)


# TLS.


@with_tls
@pytest.mark.parametrize(
    "port, host, changes, says",
    [
        ("TLS", "127.0.0.1", {}, "cannot be trusted: IP address mismatch.*it must be for the host name"),
        ("TLS", None, {"ssl_cafile": "stranger"}, "cannot be trusted: .*set ssl_cafile to the certificate"),
        ("TLS", None, {"ssl_cafile": None}, "cannot be trusted: .*set ssl_cafile to the certificate"),
        ("EXPIRED", None, {}, "cannot be trusted: certificate has expired; renew the certificate"),
        ("MUTUAL", None, {}, "requires a client certificate that it trusts.*set ssl_certfile and ssl_keyfile"),
    ],
)
async def test_a_certificate_that_does_not_fit_ends_it_at_once(
    secured: Secured, port: str, host: str | None, changes: dict[str, Any], says: str
) -> None:
    changes = {name: secured.certificates.stranger if value == "stranger" else value for name, value in changes.items()}
    settings = {**tls(secured, port), **changes, "bootstrap_servers": secured.servers(port, host)}
    async with asyncio.timeout(DEADLINE):
        error = await ended(settings)
    assert isinstance(error, AuthenticationError)
    assert re.search(says, str(error))


@with_tls
async def test_host_names_may_be_left_unchecked(secured: Secured) -> None:
    settings = {**tls(secured, ssl_check_hostname=False), "bootstrap_servers": secured.servers("TLS", "127.0.0.1")}
    async with Admin(**settings) as admin:
        assert await admin.topics.list() is not None


@with_tls
async def test_no_tls_at_a_port_that_wants_it_says_what_to_set(secured: Secured) -> None:
    error = await ended({"bootstrap_servers": secured.servers("TLS")})
    assert isinstance(error, ProtocolError)
    assert 'the port requires TLS: set security_protocol to "SSL" or "SASL_SSL"' in str(error)


async def test_tls_at_a_port_without_it_says_what_to_set(secured: Secured) -> None:
    settings = {**tls(secured, "SASL"), "bootstrap_servers": secured.bootstrap_servers}
    says = 'closed the connection during the TLS handshake; if the port does not use TLS, set security_protocol to "PL'
    error = await timed_out(settings, says)
    assert isinstance(error, KafkaTimeout)
    assert says in str(error)


# Sessions.


@only_on_the_newest
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
async def test_sessions_are_renewed_under_load_and_nothing_is_lost(
    secured: Secured, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka_lite.net")
    settings = over_tls(secured)
    tokens = 0
    if mechanism == "OAUTHBEARER":

        async def provide() -> str:
            nonlocal tokens
            tokens += 1
            return token(30.0)

        provider = {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provide}
        settings |= {"sasl_username": None, "sasl_password": None, **provider}
    topic = f"session-{next(_topics)}"
    sent = 0
    read: list[int] = []

    async def write(until: float) -> None:
        nonlocal sent
        while asyncio.get_running_loop().time() < until:
            results = await producer.send_many(topic, [b"%d" % (sent + number) for number in range(50)])
            assert [metadata.offset for metadata in results] == list(range(sent, sent + 50))
            sent += 50
            await asyncio.sleep(0.05)

    async with Producer(**settings) as producer:
        await producer.send_many(topic, [])
        async with Consumer(topics=[topic], group_id=topic, **settings) as consumer:
            writing = asyncio.create_task(write(asyncio.get_running_loop().time() + 2.2 * SESSION_MILLISECONDS / 1000))
            while not (writing.done() and len(read) == sent):
                read += [int(record.value) for record in await consumer.poll(max_records=500, timeout=0.2)]
            await writing
    assert read == list(range(sent))
    logins = [record.getMessage() for record in caplog.records if record.getMessage().startswith("logged in to")]
    lost = [record.getMessage() for record in caplog.records if record.getMessage().startswith("lost the")]
    opened = [record for record in caplog.records if "is open" in record.message]
    assert lost == []
    assert len(logins) >= 2 * len(opened), "each connection has logged in at least twice"
    assert mechanism != "OAUTHBEARER" or tokens == len(logins)


# Kafka's own files.


@only_on_apache_kafka
@only_on_the_newest
async def test_the_properties_file_of_kafkas_tools_is_enough(secured: Secured, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    (tmp_path / "password").write_text(USERS["alice"] + "\n")
    path.write_text(
        f"bootstrap.servers={secured.servers('SHORT')}\n"
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.certificates.ca}\n"
        "sasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'    username="alice" password="{USERS["alice"]}";\n'
    )
    topic = f"file-{next(_topics)}"
    async with Producer(**client_settings(read_properties(path))) as producer:  # type: ignore[arg-type]
        await producer.send(topic, b"value")
    listing = ("--list", "--command-config", str(path))
    listed = await asyncio.to_thread(run_tool, secured.version, "topics", secured.servers("SHORT"), *listing)
    assert topic in listed.split()


@only_on_apache_kafka
@only_on_the_newest
async def test_the_command_line_takes_secrets_from_files_and_the_environment(secured: Secured, tmp_path: Path) -> None:
    from tests.end_to_end.terminal import run

    topic = f"by-command-{next(_topics)}"
    (tmp_path / "password").write_text(f"{PLAIN_PASSWORD}\n")
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={secured.servers('SASL')}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username={PLAIN_USER}\nsasl.password=file:{tmp_path / 'password'}\n"
    )
    created = await run("topics", "create", topic, "-p", "1", "-r", "1", "--config", str(path))
    assert created.status == 0, created.errors
    by_environment = {
        "AIOKAFKA_LITE_BOOTSTRAP_SERVER": secured.servers("SASL"),
        "AIOKAFKA_LITE_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "AIOKAFKA_LITE_SASL_MECHANISM": "PLAIN",
        "AIOKAFKA_LITE_SASL_USERNAME": PLAIN_USER,
        "AIOKAFKA_LITE_SASL_PASSWORD": PLAIN_PASSWORD,
    }
    produced = await run("produce", topic, stdin=b"secret line\n", variables=by_environment)
    assert produced.status == 0, produced.errors
    options = ("-X", "sasl.password=env:OURS", "-c", str(path))
    consumed = await run("consume", topic, "--until", "end", *options, variables={"OURS": PLAIN_PASSWORD})
    assert (consumed.status, consumed.output) == (0, b"secret line\n"), consumed.errors
    refused = await run("topics", "list", *options, "-v", "--timeout", "5", variables={"OURS": "wrong-password"})
    assert refused.status == 1
    assert refused.errors.splitlines()[-1].startswith("aiokafka-lite: ")
    assert "wrong-password" not in refused.errors
    assert PLAIN_PASSWORD not in refused.errors


# Other clients.

OTHER_CLIENTS = ["librdkafka", "kafka-python", "aiokafka"]


@only_on_the_newest
@pytest.mark.parametrize("client", OTHER_CLIENTS)
async def test_another_client_is_let_in_every_way(secured: Secured, client: str) -> None:
    topic = f"other-{next(_topics)}"
    ways = [way for way in WAYS if way not in ("TLS with a ready context", "mutual TLS with an encrypted key")]
    for way in ways:
        assert await write_by(client, settings_of(secured, way), topic) == 1, way
    async with Admin(**settings_of(secured, "PLAIN")) as admin:
        assert topic in [listed.name for listed in await admin.topics.list()]


@only_on_the_newest
@pytest.mark.parametrize("client", ["librdkafka", "aiokafka"])  # kafka-python tries again for 30 s
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_another_client_with_a_wrong_password_is_not_let_in(
    secured: Secured, client: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = sasl(secured, mechanism, "alice", "hunter2")
    with pytest.raises(Exception) as refused:
        await write_by(client, settings, "refused")
    assert "Authentication failed" in str(refused.value) + caplog.text


@only_on_the_newest
@pytest.mark.parametrize("client", ["librdkafka", "aiokafka"])
async def test_another_client_that_does_not_trust_the_broker_does_not_connect(secured: Secured, client: str) -> None:
    settings = tls(secured, ssl_cafile=secured.certificates.stranger)
    with pytest.raises(Exception, match=r"(?i)ssl|certificate|bootstrap"):
        await write_by(client, settings, "refused")


@only_on_the_newest
async def test_sessions_of_other_clients_end_and_nothing_is_lost(secured: Secured) -> None:
    seconds = 2.2 * SESSION_MILLISECONDS / 1000
    topics = {client: f"other-session-{next(_topics)}" for client in OTHER_CLIENTS}
    writes = [write_by(client, over_tls(secured), topic, seconds) for client, topic in topics.items()]
    written = dict(zip(topics, await asyncio.gather(*writes)))
    async with Admin(**over_tls(secured)) as admin:
        ends = await admin.offsets.list({TopicPartition(topic, 0): OffsetSpec.LATEST for topic in topics.values()})
    counts = {client: ends[TopicPartition(topic, 0)] for client, topic in topics.items()}
    assert {client: end.offset for client, end in counts.items() if end} == written


# Raw requests.

VERSIONS = (ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
TOPICS = (MetadataRequest(topics=[]), 13)
BOB = (SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret"), 2)
WRONG = (SaslAuthenticateRequest(auth_bytes=b"\0bob\0hunter2"), 2)
EMPTY = (SaslAuthenticateRequest(auth_bytes=b""), 2)
AFTER_LOGIN = "SaslAuthenticate request received after successful authentication"
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


def begin(mechanism: str) -> tuple[SaslHandshakeRequest, int]:
    return SaslHandshakeRequest(mechanism=mechanism), 1


RAW = {
    "a request before the login": ([VERSIONS, TOPICS], [0, "closed"]),
    "ApiVersions twice": ([VERSIONS, VERSIONS], [0, "closed"]),
    "a message before the handshake": ([BOB], ["closed"]),
    "another request during the login": ([begin("PLAIN"), TOPICS], [0, 34, "closed"]),
    "an unknown mechanism": ([begin("GSSAPI")], [33, "closed"]),
    "a wrong password": (
        [begin("PLAIN"), WRONG],
        [0, (58, "Authentication failed: Invalid username or password"), "closed"],
    ),
    "no password": (
        [begin("PLAIN"), EMPTY],
        [0, (58, "Invalid SASL/PLAIN response: expected 3 tokens, got 1"), "closed"],
    ),
    "no SCRAM": ([begin("SCRAM-SHA-256"), EMPTY], [0, (58, f"{GENERIC}SCRAM-SHA-256"), "closed"]),
    "no token": ([begin("OAUTHBEARER"), EMPTY], [0, (58, f"{GENERIC}OAUTHBEARER"), "closed"]),
    "a login": ([VERSIONS, begin("PLAIN"), BOB, TOPICS], [0, 0, (0, ""), 0]),
    "a second handshake": ([begin("PLAIN"), BOB, begin("PLAIN"), TOPICS], [0, (0, ""), 34, 0]),
    "a second message": ([begin("PLAIN"), BOB, BOB, TOPICS], [0, (0, ""), (34, AFTER_LOGIN), 0]),
}


@only_on_the_newest
@pytest.mark.parametrize("name", RAW)
async def test_raw_requests_are_answered_as_by_apache_kafka(secured: Secured, name: str) -> None:
    requests, expected = RAW[name]
    host, _, port = secured.servers("SASL").partition(":")
    assert await outcomes(host, int(port), requests) == expected


def bearer(subject: str) -> tuple[SaslAuthenticateRequest, int]:
    return SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer %s\x01\x01" % token(60.0, subject).encode()), 2


OTHER_PRINCIPAL = "Cannot change principals during re-authentication from User.carol: User.dave"


@only_on_the_newest
@pytest.mark.parametrize(
    "mechanism, subject, then, expected",
    [
        ("OAUTHBEARER", "carol", [TOPICS], [0, (0, ""), 0]),
        ("OAUTHBEARER", "dave", [], [0, (58, OTHER_PRINCIPAL), "closed"]),
        ("SCRAM-SHA-256", "carol", [], [0, "closed"]),
        ("PLAIN", None, [], ["closed"]),
        ("OAUTHBEARER", None, [TOPICS], [0, 34, "closed"]),
    ],
)
async def test_a_session_is_renewed_as_by_apache_kafka(
    secured: Secured, mechanism: str, subject: str | None, then: list[Any], expected: list[Any]
) -> None:
    context = ssl.create_default_context(cafile=secured.certificates.ca)
    host, _, port = secured.servers("SHORT").partition(":")
    first = [begin("OAUTHBEARER"), bearer("carol")]
    # A token is good for a minute. It is made here, because the parameters are made long before this test runs.
    renewal = [begin(mechanism), *([] if subject is None else [bearer(subject)]), *then]
    assert await outcomes(host, int(port), [*first, *renewal], context) == [0, (0, ""), *expected]


async def outcomes(
    host: str, port: int, requests: list[tuple[Any, int]], context: ssl.SSLContext | None = None
) -> list[Any]:
    """Return the error code of each response, with its text if it has one; "closed" if the broker closes the
    connection.
    """
    protocol: ClientProtocol[None] = ClientProtocol("broker")
    stream = FramedStreamReader(1 << 20, "broker")
    await asyncio.get_running_loop().create_connection(lambda: stream, host, port, ssl=context)
    messages: list[Any] = []
    try:
        async with asyncio.timeout(DEADLINE):
            for request, version in requests:
                stream.write([protocol.encode_request(request, version, "test", None)])
                messages.append(await _outcome(stream, protocol))
            if messages[-1] not in ("closed", 0):
                messages.append(await _outcome(stream, protocol))
    finally:
        stream.abort()
        await stream.wait_closed()
    return messages


async def _outcome(stream: FramedStreamReader, protocol: ClientProtocol[None]) -> Any:
    try:
        frame = await stream.read_frame()
    except ConnectionLost:
        frame = None
    if frame is None:
        return "closed"
    response: Any = protocol.receive(frame)[1]
    code = getattr(response, "error_code", 0)
    return (code, response.error_message) if hasattr(response, "error_message") else code
