"""The client of a schema registry: its calls, its cache, and its behaviour when the registry fails."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.errors import (
    AuthenticationError,
    ConfigurationError,
    IllegalStateError,
    KafkaTimeout,
    SchemaRegistryError,
)
from aiokafka_lite.schemas import Schema, SchemaReference, SchemaRegistryClient
from tests.embedded.schemas.formats import AVRO
from tests.waiting import until

ORDER = Schema(json.dumps(AVRO))
NEXT = Schema(json.dumps({**AVRO, "fields": [*AVRO["fields"], {"name": "note", "type": "string", "default": ""}]}))
BROKEN = Schema(json.dumps({**AVRO, "fields": [*AVRO["fields"], {"name": "note", "type": "string"}]}))


async def test_schemas_are_registered_found_and_deleted(registry: SchemaRegistryClient) -> None:
    first = await registry.register("orders", ORDER)
    second = await registry.register("orders", NEXT)
    assert (first.schema_id, first.version, second.schema_id, second.version) == (1, 1, 2, 2)
    assert await registry.lookup("orders", ORDER) == first
    assert await registry.by_id(2) == await registry.by_guid(second.guid or "") == NEXT
    assert await registry.by_version("orders", 1) == first
    assert await registry.latest("orders") == second
    assert await registry.versions("orders") == [1, 2]
    await registry.delete_version("orders", 2)
    assert (await registry.latest("orders")).version == 1
    assert await registry.delete_subject("orders") == [1]
    assert await registry.subjects() == []
    assert await registry.subjects("ord", deleted=True) == ["orders"]
    await registry.delete_subject("orders", permanent=True)
    assert await registry.subjects(deleted=True) == []
    assert await registry.by_id(1) == ORDER, "records with this id may exist"


async def test_a_schema_may_refer_to_others(registry: SchemaRegistryClient) -> None:
    await registry.register("order", ORDER)
    text = json.dumps({"type": "array", "items": "shop.Order"})
    with pytest.raises(SchemaRegistryError, match=r"'orders'.*shop\.Order.*is not defined.*correct the schema"):
        await registry.register("orders", Schema(text))
    schema = Schema(text, references=(SchemaReference("shop.Order", "order", 1),))
    assert (await registry.by_id((await registry.register("orders", schema)).schema_id)) == schema


async def test_compatibility_is_checked_by_the_level_of_the_subject(registry: SchemaRegistryClient) -> None:
    assert await registry.compatibility("orders") == "BACKWARD"
    for version in (None, "latest"):
        assert (await registry.check_compatibility("orders", BROKEN, version=version)).is_compatible  # type: ignore[arg-type]
    with pytest.raises(SchemaRegistryError, match="Version 1 not found"):
        await registry.check_compatibility("orders", BROKEN, version=1)
    await registry.register("orders", ORDER)
    for version in (None, "latest", 1):
        assert not (await registry.check_compatibility("orders", BROKEN, version=version)).is_compatible  # type: ignore[arg-type]
    for wrong in ("newest", 0, True):
        with pytest.raises((TypeError, ValueError), match="version must be"):
            await registry.check_compatibility("orders", BROKEN, version=wrong)  # type: ignore[arg-type]
    refused = await registry.check_compatibility("orders", BROKEN)
    assert not refused.is_compatible
    assert "note" in refused.messages[0]
    with pytest.raises(SchemaRegistryError, match=r"'orders'.*note.*set_compatibility\(\)") as caught:
        await registry.register("orders", BROKEN)
    assert (caught.value.status, caught.value.code, caught.value.subject) == (409, 409, "orders")
    await registry.set_compatibility("NONE", "orders")
    assert await registry.compatibility("orders") == "NONE"
    assert await registry.compatibility() == "BACKWARD"
    await registry.register("orders", BROKEN)


async def test_a_read_only_subject_refuses_new_schemas(registry: SchemaRegistryClient) -> None:
    await registry.set_mode("READONLY", "orders")
    assert (await registry.mode(), await registry.mode("orders")) == ("READWRITE", "READONLY")
    with pytest.raises(SchemaRegistryError, match="read-only"):
        await registry.register("orders", ORDER)


async def test_an_error_names_the_subject_the_address_and_what_to_do(
    registry: SchemaRegistryClient, embedded_schema_registry: EmbeddedSchemaRegistry
) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        await registry.latest("orders/value")
    assert str(caught.value) == (
        f"{embedded_schema_registry.url} refused GET /subjects/orders%2Fvalue/versions/latest for subject"
        " 'orders/value': Subject 'orders/value' not found. (HTTP status 404, code 40401);"
        " register the schema first, or check the name of the subject"
    )


async def test_tasks_that_need_one_schema_share_one_request(
    registry: SchemaRegistryClient, embedded_schema_registry: EmbeddedSchemaRegistry
) -> None:
    await registry.register("orders", ORDER)
    embedded_schema_registry.requests.clear()
    assert await asyncio.gather(*(registry.by_id(1) for _ in range(10))) == [ORDER] * 10
    assert await registry.by_id(1) == ORDER
    assert embedded_schema_registry.requests == ["GET /schemas/ids/1"]
    errors = await asyncio.gather(*(registry.by_id(9) for _ in range(10)), return_exceptions=True)
    assert [type(error) for error in errors] == [SchemaRegistryError] * 10
    assert embedded_schema_registry.requests[1:] == ["GET /schemas/ids/9"]


async def test_a_cancelled_request_does_not_fail_those_that_wait_for_it(registry: SchemaRegistryClient) -> None:
    await registry.register("orders", ORDER)
    first, second = (asyncio.ensure_future(registry.by_id(1)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ORDER
    assert first.cancelled()


async def test_a_registry_that_fails_is_asked_again(
    registry: SchemaRegistryClient,
    embedded_schema_registry: EmbeddedSchemaRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafka_lite.schemas")
    for status in (429, 503):
        embedded_schema_registry.fail(status, times=3)
        await registry.register("orders", NEXT if status == 503 else ORDER)
    assert len(embedded_schema_registry.requests) == 8
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO"] * 2
    assert "HTTP status 429: injected" in caplog.text
    assert "answered after 3 failed attempts" in caplog.text


async def test_retries_end_after_the_timeout(embedded_schema_registry: EmbeddedSchemaRegistry) -> None:
    embedded_schema_registry.fail(500, times=10_000)
    async with SchemaRegistryClient(embedded_schema_registry.url, timeout=0.1, retry_backoff=0.001) as registry:
        with pytest.raises(KafkaTimeout, match=r"POST .* 'orders' was not answered within timeout=0.1 s by http"):
            await registry.register("orders", ORDER)


async def test_the_next_address_is_asked_at_once_when_one_fails(
    embedded_schema_registry: EmbeddedSchemaRegistry,
) -> None:
    async with EmbeddedSchemaRegistry() as failing:
        failing.fail(503, times=10)
        urls = [failing.url, embedded_schema_registry.url + "/"]
        async with SchemaRegistryClient(urls, retry_backoff=60.0, retry_backoff_max=60.0) as registry:
            assert await registry.subjects() == []
            assert await registry.subjects("o") == []
        assert len(failing.requests) == 1, "the address that has answered is asked first"


@pytest.mark.parametrize(
    "credentials, arguments",
    [
        ({"username": "ann", "password": "pä:ss"}, {"username": "ann", "password": "pä:ss"}),
        ({"token": "abc"}, {"token": "abc"}),
        ({"token": "abc"}, {"token": lambda: "abc"}),
        ({"token": "abc"}, {"token": lambda: asyncio.sleep(0, "abc")}),
    ],
)
async def test_requests_have_credentials(credentials: dict[str, str], arguments: dict[str, Any]) -> None:
    async with EmbeddedSchemaRegistry(**credentials) as server:
        async with SchemaRegistryClient(server.url, **arguments) as registry:
            assert await registry.subjects() == []
        async with SchemaRegistryClient(server.url) as registry:
            with pytest.raises(SchemaRegistryError, match="check username and password, or token"):
                await registry.subjects()


async def test_an_address_may_contain_the_credentials() -> None:
    async with EmbeddedSchemaRegistry(username="ann", password="p/ss") as server:
        url = server.url.replace("http://", "http://ann:p%2Fss@")
        async with SchemaRegistryClient(url) as registry:
            assert await registry.subjects() == []
            assert "p%2Fss" not in repr(registry)


async def test_a_registry_speaks_https_and_its_certificate_is_checked() -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with EmbeddedSchemaRegistry(ssl_context=context) as server:
        async with SchemaRegistryClient(server.url, ssl_context=trusting) as registry:
            assert await registry.subjects() == []
        async with SchemaRegistryClient(server.url, ssl_context=ssl.create_default_context()) as registry:
            with pytest.raises(AuthenticationError, match=r"is not trusted.*pass an ssl_context with its CA"):
                await registry.subjects()


async def test_a_closed_client_says_so(embedded_schema_registry: EmbeddedSchemaRegistry) -> None:
    registry = SchemaRegistryClient(embedded_schema_registry.url)
    await registry.subjects()
    await registry.close()
    await registry.close()
    with pytest.raises(IllegalStateError, match="is closed"):
        await registry.subjects()


async def test_calls_that_wait_end_when_the_client_is_closed(embedded_schema_registry: EmbeddedSchemaRegistry) -> None:
    embedded_schema_registry.fail(503, times=10_000)
    registry = SchemaRegistryClient(embedded_schema_registry.url, retry_backoff=60.0, retry_backoff_max=60.0)
    calls = [asyncio.ensure_future(registry.by_id(1)) for _ in range(2)]
    await until(lambda: embedded_schema_registry.requests)
    await registry.close()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [IllegalStateError] * 2


async def test_a_token_that_a_header_cannot_carry_is_in_no_error() -> None:
    async with SchemaRegistryClient("http://127.0.0.1:1", token=lambda: "secret\n") as registry:
        with pytest.raises(AuthenticationError, match="token must be visible ASCII characters") as caught:
            await registry.subjects()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: SchemaRegistryClient("localhost:8081"), "url must be the http:// or https:// address"),
        (lambda: SchemaRegistryClient([]), "url must be"),
        (lambda: SchemaRegistryClient("http://h", username="ann"), "username and password are required together"),
        (lambda: SchemaRegistryClient("http://a:b@h", token="t"), "token cannot be combined"),
        (lambda: SchemaRegistryClient("http://h", token=5), "token must be a string, or a function"),
        (lambda: SchemaRegistryClient("http://h", token="secret\n"), "token must be visible ASCII characters"),
        (lambda: SchemaRegistryClient("http://h:abc"), "url must be the address of a schema registry"),
        (lambda: SchemaRegistryClient("http://[::1"), "url must be the address of a schema registry"),
        (lambda: SchemaRegistryClient("http://h", timeout=0), "timeout must be a number of seconds > 0, got 0"),
        (lambda: SchemaRegistryClient("http://h", ssl_context=True), "ssl_context must be an ssl.SSLContext"),
        (lambda: Schema(" "), "text must be the text of a schema"),
        (lambda: Schema("{}", "XML"), "type must be 'AVRO', 'JSON' or 'PROTOBUF', got 'XML'"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert text in str(caught.value)


async def test_the_port_of_a_broker_is_an_error_at_once() -> None:
    async with EmbeddedCluster(1) as cluster, SchemaRegistryClient(f"http://{cluster.bootstrap_servers}") as registry:
        with pytest.raises(ConfigurationError, match=r"a Kafka broker answers at .*; url must be the address of"):
            await registry.register("orders", ORDER)


@asynccontextmanager
async def closing_server(heard: list[bytes]) -> AsyncIterator[str]:
    """Yield the URL of a server that closes each connection after the first bytes, which it adds to ``heard``."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(64))
        writer.transport.abort()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def is_http(heard: bytes) -> bool:
    return heard.startswith(b"GET /subjects")


async def test_the_next_address_is_asked_before_a_search_for_brokers(
    embedded_schema_registry: EmbeddedSchemaRegistry,
) -> None:
    heard: list[bytes] = []
    async with (
        closing_server(heard) as closing,
        SchemaRegistryClient([closing, embedded_schema_registry.url]) as registry,
    ):
        assert await registry.subjects() == []
    assert [is_http(data) for data in heard] == [True]


async def test_an_address_is_taken_for_a_broker_at_most_once_in_a_call() -> None:
    heard: list[bytes] = []
    async with closing_server(heard) as closing, SchemaRegistryClient(closing, retry_backoff=0.001) as registry:
        call = asyncio.create_task(registry.subjects())
        await until(lambda: len(heard) >= 5, "the call is retried")
        call.cancel()
        await asyncio.wait([call])
    assert [is_http(data) for data in heard[:5]] == [True, False, True, True, True]
