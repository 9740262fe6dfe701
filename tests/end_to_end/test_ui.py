"""The page of ``aiokafka-lite ui`` in a real browser, and what its server refuses."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.admin import NewTopic
from aiokafka_lite.cli.ui import serving_embedded
from aiokafka_lite.embedded import ClusterConfig, EmbeddedSchemaRegistry, Security
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.schemas import AvroSerializer, Schema, SchemaRegistryClient
from aiokafka_lite.ui.application import MOST_OPEN, Clients
from aiokafka_lite.ui.serving import serving
from tests.end_to_end.browser import CHROMIUM, Browser, browser
from tests.end_to_end.conftest import Kafka
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE

pytestmark = since(NEWEST, "the clients below the page are tested on all releases")

SCRIPT = "<script>document.title = 'run'</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture
def needs_browser() -> None:
    if CHROMIUM is None and "CI" not in os.environ:
        pytest.skip("this machine has no Chromium")


@asynccontextmanager
async def page_of(
    kafka: Kafka, *, writes: bool = True, registry: SchemaRegistryClient | None = None
) -> AsyncIterator[str]:
    """Serve the page of a cluster; yields its address."""
    async with Admin(kafka.bootstrap_servers) as admin, Producer(kafka.bootstrap_servers) as producer:
        clients = Clients(
            admin=admin,
            new_consumer=lambda: Consumer(kafka.bootstrap_servers),
            producer=producer if writes else None,
            registry=registry,
        )
        async with serving(clients, 0) as address:
            yield address


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Browser]:
    async with browser() as page:
        await page.resize(1200, 800)
        await page.open(address)
        await page.until("document.querySelector('h1')")
        yield page


async def go(page: Browser, view: str) -> None:
    await page.value(f"location.hash = {json.dumps('#/' + view)}")


@pytest.mark.usefixtures("needs_browser")
async def test_records_are_shown_as_text_searched_and_followed(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(40):
            await producer.send(topic, b'{"number": %d}' % number, key=b"key-%d" % number)
        await producer.send(topic, SCRIPT.encode(), key=b"\xff\x00", headers=[(SCRIPT, b"x")])
        async with page_of(kafka) as address, opened(address) as page:
            await go(page, f"topics/{topic}")
            await page.until("document.querySelectorAll('table.records tbody tr').length === 41")
            assert SCRIPT in await page.text()
            assert await page.value("document.title") == f"{topic} – Kafka"
            assert await page.value("document.images.length") == 0
            assert '"number": 39' in await page.text()
            assert "ff 00" in await page.text()
            # By the keyboard alone: "/" moves to the search, Enter reads.
            await page.value("document.activeElement.blur()")
            await page.press("/")
            for character in "key-17":
                await page.press(character)
            await page.press("Enter")
            await page.until("document.querySelectorAll('table.records tbody tr').length === 1")
            assert '"number": 17' in await page.text()
            assert "1 shown, 41 read" in await page.text()
            # The live tail.
            await page.value("document.getElementById('tail').click()")
            await page.until("document.body.innerText.includes('live')")
            await producer.send(topic, b"arrived later")
            await page.until("document.body.innerText.includes('arrived later')")
            await page.value("document.getElementById('tail').click()")
            assert await page.value("document.getElementById('tail').textContent") == "Live tail"


@pytest.mark.usefixtures("needs_browser")
async def test_values_of_a_registry_are_decoded_and_schemas_are_listed(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    order = {"type": "record", "name": "Order", "fields": [{"name": "city", "type": "string"}]}
    async with (
        EmbeddedSchemaRegistry() as server,
        SchemaRegistryClient(server.url) as registry,
        Producer(kafka.bootstrap_servers, value_serializer=AvroSerializer(registry, order)) as producer,
        Producer(kafka.bootstrap_servers) as plain,
    ):
        await producer.send(topic, {"city": "Rome"})
        await plain.send(topic, b"plain text")
        await plain.send(topic, b"\0\0\0\x03\xe7unknown")
        async with page_of(kafka, registry=registry) as address, opened(address) as page:
            await go(page, f"topics/{topic}")
            await page.until("document.querySelectorAll('table.records tbody tr').length === 3")
            text = await page.text()
            assert '"city": "Rome"' in text
            assert "plain text" in text
            assert "schema 999: " in text
            await page.value("document.getElementById('tail').click()")
            await page.until("document.body.innerText.includes('live')")
            await producer.send(topic, {"city": "Oslo"})
            await page.until('document.body.innerText.includes(\'"city": "Oslo"\')')
            await page.value("document.getElementById('tail').click()")
            await go(page, "schemas")
            await page.until(f"document.body.innerText.includes('{topic}-value')")
            await page.value("document.querySelector('tbody a').click()")
            await page.until('document.body.innerText.includes(\'"name": "Order"\')')
            assert "AVRO" in await page.text()


@pytest.mark.usefixtures("needs_browser")
async def test_changes_ask_for_confirmation(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    group = f"{topic}-readers"
    async with (
        Producer(kafka.bootstrap_servers) as producer,
        Admin(kafka.bootstrap_servers) as admin,
        page_of(kafka) as address,
        opened(address) as page,
    ):
        await producer.send_many(topic, [b"x"] * 5)
        await admin.groups.alter_offsets(group, {TopicPartition(topic, 0): 2})
        await go(page, f"topics/{topic}")
        await page.until("document.querySelector('textarea')")
        await page.value("document.querySelector('textarea').value = 'by the page'")
        for answer, expected in ((None, 5), ("", 6)):
            page.dialogs.append(answer)
            await page.value("document.querySelector('textarea').form.querySelector('button').click()")
            if answer is not None:
                await page.until("document.body.textContent.includes('at offset 5')")
            ends = await admin.offsets.list({TopicPartition(topic, 0): -1})
            place = ends[TopicPartition(topic, 0)]
            assert place is not None
            assert place.offset == expected
        await go(page, f"groups/{group}")
        await page.until("document.body.innerText.includes('lag 4')")
        page.dialogs.append("another name")
        await page.value("document.querySelector('button.danger').click()")
        await page.until("document.body.innerText.includes('nothing has changed')")
        page.dialogs.append(group)
        await page.value("document.querySelector('button.danger').click()")
        await page.until("document.body.innerText.includes('lag 6')")
        await go(page, f"topics/{topic}")
        await page.until("document.querySelector('textarea')")
        page.dialogs.append(topic)
        await page.value("document.querySelector('button.danger').click()")
        await page.until("location.hash === '#/topics'")


@pytest.mark.usefixtures("needs_browser")
async def test_a_phone_and_a_thousand_topics() -> None:
    async with EmbeddedCluster(brokers=3) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            for first in range(0, 1_000, 250):  # a request may create 10,000 partitions, all replicas counted
                names = [f"topic-{number:04}" for number in range(first, first + 250)]
                assert not (await admin.topics.create([NewTopic(name, 10) for name in names])).failed
        async with serving_embedded(cluster) as address, opened(address) as page:
            await go(page, "topics")
            await page.until("document.body.innerText.includes('1,000 of 1,000')")
            await page.value(
                "(field => { field.value = 'topic-0777'; field.dispatchEvent(new Event('input')); })"
                "(document.querySelector('[data-search]'))"
            )
            await page.until("document.querySelectorAll('tbody tr').length === 1")
            await go(page, "topics/topic-0777")
            await page.until("document.querySelector('table.records')")
            await page.resize(360, 700, dark=True)
            assert await page.value("document.documentElement.scrollWidth") <= 360
            assert await page.value("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
            await go(page, "timeline")
            await page.until("document.body.innerText.includes('CreateTopics v')")
            assert "aiokafka-lite-ui" not in await page.text()


async def test_the_page_does_not_fill_the_history_of_requests_with_its_own() -> None:
    async with EmbeddedCluster(config=ClusterConfig(history_limit=20)) as cluster:
        await cluster.create_topic("orders")
        async with serving_embedded(cluster) as address, httpx.AsyncClient(timeout=DEADLINE) as client:
            async with Producer(cluster.bootstrap_servers, client_id="shop") as producer:
                await producer.send("orders", b"1")
            await client.get(address)
            base = address.split("/?token=")[0]
            for _ in range(20):
                assert (await client.get(f"{base}/api/topics/orders")).status_code == 200
            requests = (await client.get(f"{base}/api/timeline")).json()["requests"]
    assert {request["client"] for request in requests} == {"shop"}
    assert "Produce" in [request["request"] for request in requests]


@pytest.mark.parametrize(
    ("security", "super_users"),
    [
        (Security("PLAINTEXT"), None),
        (Security("SASL_SSL", users={"alice": "secret"}), ["User:alice"]),
        (Security("SSL", client_auth="required"), ["User:CN=client"]),
    ],
    ids=["plaintext", "SASL over TLS", "TLS with certificates"],
)
async def test_the_page_of_brokers_whose_addresses_are_for_other_machines(
    security: Security, super_users: list[str] | None
) -> None:
    config = ClusterConfig(advertised_host="kafka.invalid", advertised_port=19092)
    async with EmbeddedCluster(brokers=3, config=config, security=security, super_users=super_users) as cluster:
        await cluster.create_topic("orders", partitions=3)
        async with serving_embedded(cluster) as address, httpx.AsyncClient(timeout=DEADLINE) as client:
            await client.get(address)
            base = address.split("/?token=")[0]
            cluster_view = (await client.get(f"{base}/api/cluster")).json()
            body = {"key": None, "value": "1"}
            sent = await client.post(f"{base}/api/topics/orders/records", json=body, headers={"Origin": base})
            records = (await client.get(f"{base}/api/topics/orders/records")).json()
    assert [broker["address"] for broker in cluster_view["brokers"]] == [f"kafka.invalid:{19092 + n}" for n in range(3)]
    assert sent.json()["offset"] == 0
    assert [record["value"]["text"] for record in records["records"]] == ["1"]


@pytest.mark.usefixtures("needs_browser")
async def test_a_record_with_nanoseconds_as_its_time_does_not_hide_the_others() -> None:
    async with EmbeddedCluster() as cluster:
        await cluster.create_topic("orders", configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
        async with Producer(cluster.bootstrap_servers) as producer:
            for value, timestamp in ((b"nanoseconds", 1_795_989_952_806_000_000), (b"milliseconds", 1_795_989_952_806)):
                await producer.send("orders", value, timestamp=timestamp)
        async with serving_embedded(cluster) as address, opened(address) as page:
            await go(page, "topics/orders")
            await page.until("document.querySelector('table.records') || document.querySelector('.error')")
            text = await page.text()
    assert "@1795989952806000000" in text
    assert "2026-11-29 22:05:52.806" in text


async def test_other_hosts_other_origins_and_other_users_are_refused(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with page_of(kafka, writes=False) as address, httpx.AsyncClient(timeout=DEADLINE) as client:
        base, token = address.split("/?token=")
        host = urlsplit(base).netloc
        assert (await client.get(f"{base}/api/topics")).status_code == 403
        assert (await client.get(f"{base}/?token=wrong")).status_code == 403
        entered = await client.get(address)
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert token not in entered.headers["location"]
        page = await client.get(base + "/")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert (await client.get(f"{base}/api/about")).json() == {"writes": False, "schemas": False, "embedded": False}
        for wrong_host in ("evil.example", f"evil.example:{urlsplit(base).port}"):
            assert (await client.get(f"{base}/api/topics", headers={"host": wrong_host})).status_code == 403
        # A server at another port is the same site for the browser, which sends the cookie.
        for headers in ({"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site"}, {"origin": "http://a:1"}):
            for path in ("/", "/api/topics", f"/?token={token}"):
                assert (await client.get(base + path, headers=headers)).status_code == 403
        for site in ("none", "same-origin"):
            assert (await client.get(f"{base}/api/topics", headers={"sec-fetch-site": site})).status_code == 200
        path = f"{base}/api/topics/{topic}/records"
        for origin in (None, "http://evil.example", "null"):
            headers = {} if origin is None else {"origin": origin}
            assert (await client.post(path, json={"value": "x"}, headers=headers)).status_code == 403
        own = {"origin": f"http://{host}"}
        refused = await client.post(path, json={"value": "x"}, headers=own)
        assert refused.json()["error"] == "this page is read-only; start it with --allow-writes"
        assert (await client.post(path, content=b"x" * 3_000_000, headers=own)).status_code == 413


async def test_a_large_body_without_a_size_is_refused(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"value": "'
        for _ in range(3):
            yield b"x" * 1_000_000
        yield b'"}'

    async with page_of(kafka) as address, httpx.AsyncClient(timeout=DEADLINE) as client:
        base = address.split("/?token=")[0]
        await client.get(address)
        path = f"{base}/api/topics/{topic}/records"
        assert (await client.post(path, content=pieces(), headers={"origin": base})).status_code == 413


async def test_more_live_tails_than_the_page_may_open_have_an_error(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with page_of(kafka) as address, httpx.AsyncClient(timeout=DEADLINE) as client, AsyncExitStack() as stack:
        base = address.split("/?token=")[0]
        await client.get(address)
        answers = []
        for _ in range(MOST_OPEN + 1):
            response = await stack.enter_async_context(client.stream("GET", f"{base}/api/topics/{topic}/tail"))
            # A tail ends when its lines are closed.
            lines = await stack.enter_async_context(aclosing(cast(AsyncGenerator[str], response.aiter_lines())))
            answers.append(json.loads((await anext(lines)).removeprefix("data: ")))
        assert answers[:-1] == [{"records": [], "skipped": 0}] * MOST_OPEN
        assert answers[-1] == {"error": "8 live tails are open; wait until one has ended"}


async def test_wrong_requests_have_an_error_that_says_what(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with page_of(kafka) as address, httpx.AsyncClient(timeout=DEADLINE) as client:
        base = address.split("/?token=")[0]
        own = {"origin": base}
        await client.get(address)
        cases = {
            f"topics/{topic}/records?limit=0": (400, "limit must be a number from 1 to 500"),
            f"topics/{topic}/records?from=yesterday": (400, "from must be latest, earliest"),
            f"topics/{topic}/records?partition=7": (400, "has no partition 7"),
            f"topics/{topic}/records?partition=x": (400, "partition must be a whole number >= 0, got 'x'"),
            f"topics/{topic}/records?partition=-1": (400, "partition must be a whole number >= 0"),
            f"topics/{topic}?first=-5": (400, "first must be a whole number >= 0"),
            "groups/no-such-group": (404, "there is no such group"),
            "topics/no-such-topic": (404, "no-such-topic"),
            "topics/no-such-topic/records": (404, "no-such-topic"),
            "schemas": (400, "start the page with --registry"),
            "timeline": (400, "only the embedded broker has a timeline"),
        }
        for path, (status, message) in cases.items():
            answer = await client.get(f"{base}/api/{path}")
            assert (answer.status_code, message in answer.text) == (status, True), (path, answer.text)
        for path, body, message in (
            (f"topics/{topic}/delete", {"confirm": "other"}, "type the name of the topic"),
            ("reset/readers", {"to": "yesterday"}, "to must be earliest or latest"),
            ("reset/readers", {"to": []}, "to must be earliest or latest"),
            ("reset/readers", ["latest"], "the body must be an object"),
            (f"topics/{topic}/records", "text", "the body must be an object"),
            (f"topics/{topic}/records", {"value": "x", "partition": 0.5}, "partition must be a whole number >= 0"),
            (f"topics/{topic}/records", {"value": "x", "partition": -1}, "partition must be a whole number >= 0"),
            (f"topics/{topic}/records", {"value": "x", "partition": 7}, "has no partition 7; it has 1"),
            (f"topics/{topic}/records", {"value": 5}, "value must be a string"),
            (f"topics/{topic}/records", {"value": "x", "key": ["x"]}, "key must be a string or null"),
            (f"topics/{topic}/records", {"value": "\ud800"}, "value must be a string that UTF-8 can encode"),
        ):
            answer = await client.post(f"{base}/api/{path}", content=json.dumps(body), headers=own)
            assert (answer.status_code, message in answer.json()["error"]) == (400, True), (body, answer.text)
        answer = await client.post(f"{base}/api/topics/{topic}/records", content=b"not JSON", headers=own)
        assert answer.status_code == 400
        answer = await client.post(f"{base}/api/topics/{topic}/records", json={"value": {"a": [1]}}, headers=own)
        assert answer.status_code == 200
        answer = await client.get(f"{base}/api/topics/{topic}/records")
        assert json.loads(answer.json()["records"][0]["value"]["text"]) == {"a": [1]}


async def read_records(kafka: Kafka, topic: str, query: str) -> dict[str, Any]:
    async with page_of(kafka) as address, httpx.AsyncClient(timeout=DEADLINE) as client:
        await client.get(address)
        answer = await client.get(f"{address.split('/?token=')[0]}/api/topics/{topic}/records?{query}")
        result: dict[str, Any] = answer.json()
        return result


async def test_a_search_of_the_newest_records_begins_at_the_end(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    now = int(time.time() * 1000)
    async with Producer(kafka.bootstrap_servers) as producer:
        for part in range(3):
            values = [b"red" if (part, number) in ((0, 3), (2, 995)) else b"x" for number in range(1_000)]
            await producer.send_many(topic, values, timestamp=now + part)
    result = await read_records(kafka, topic, "search=red&limit=1")
    assert [record["offset"] for record in result["records"]] == [2_995]
    assert result["scanned"] < 100
    assert result["since"] == now + 2
    result = await read_records(kafka, topic, "search=red&limit=2")
    assert [record["offset"] for record in result["records"]] == [2_995, 3]
    assert (result["scanned"], result["since"], result["stopped"]) == (3_000, None, None)


async def test_the_newest_records_of_unequal_partitions_are_read_without_the_rest(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=4)
    now = int(time.time() * 1000)
    async with Producer(kafka.bootstrap_servers) as producer:
        for partition in range(4):
            await producer.send_many(topic, [b"x"] * 300, partition=partition, timestamp=now + (partition == 2))
    result = await read_records(kafka, topic, "limit=100")
    assert [(record["partition"], record["offset"]) for record in result["records"]] == [
        (2, offset) for offset in range(299, 199, -1)
    ]
    assert result["scanned"] <= 300  # and not 100 of each partition


@pytest.mark.parametrize("place", ["latest", "earliest"])
async def test_an_answer_has_only_so_many_bytes(kafka: Kafka, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokafka_lite.ui.records.MOST_BYTES", 10_500)
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send_many(topic, [b"x" * 1_000] * 40)
    result = await read_records(kafka, topic, f"limit=50&from={place}")
    offsets = [record["offset"] for record in result["records"]]
    assert offsets == list(range(39, 29, -1)) if place == "latest" else offsets[:10] == list(range(10))
    assert result["stopped"] == "the records are too large"


@pytest.mark.parametrize("error", [RuntimeError("of the block"), asyncio.CancelledError()])
async def test_the_end_of_the_block_ends_live_tails(
    kafka: Kafka, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with httpx.AsyncClient(timeout=DEADLINE) as client, AsyncExitStack() as stack:
        with pytest.raises(type(error)) as caught:
            async with page_of(kafka) as address:
                await client.get(address)
                path = f"{address.split('/?token=')[0]}/api/topics/{topic}/tail"
                response = await stack.enter_async_context(client.stream("GET", path))
                lines = await stack.enter_async_context(aclosing(cast(AsyncGenerator[str], response.aiter_lines())))
                assert await anext(lines)
                raise error
        # The answer has its end: it was not cut off.
        assert all([not line or line.startswith("data: ") async for line in lines])
    assert caught.value is error
    assert "Traceback" not in caplog.text


async def test_json_is_indented_and_otherwise_as_it_was_written(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    values = {
        rb'{"a": "\ud800", "b": "\u00e9\n"}': '{\n  "a": "\\ud800",\n  "b": "\u00e9\\n"\n}',
        b'{"price":1.10,"id":12345678901234567890123}': '{\n  "price": 1.10,\n  "id": 12345678901234567890123\n}',
        b'{"a":1e400,"a":[{},[ ],"{,:\\"}"]}': '{\n  "a": 1e400,\n  "a": [\n    {},\n    [],\n    "{,:\\"}"\n  ]\n}',
        b"-0.0": "-0.0",
        b'{"a": 1': '{"a": 1',
    }
    async with Producer(kafka.bootstrap_servers) as producer, httpx.AsyncClient(timeout=DEADLINE) as client:
        await producer.send_many(topic, list(values))
        async with page_of(kafka) as address:
            await client.get(address)
            answer = await client.get(f"{address.split('/?token=')[0]}/api/topics/{topic}/records?from=earliest")
    assert [record["value"]["text"] for record in answer.json()["records"]] == list(values.values())


async def test_a_decoded_value_with_half_a_character_is_shown(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with (
        EmbeddedSchemaRegistry() as server,
        SchemaRegistryClient(server.url) as registry,
        Producer(kafka.bootstrap_servers) as producer,
        httpx.AsyncClient(timeout=DEADLINE) as client,
    ):
        registered = await registry.register(f"{topic}-value", Schema("{}", "JSON"))
        await producer.send(topic, b"\0" + registered.schema_id.to_bytes(4, "big") + rb'{"a":"\ud800"}')
        async with page_of(kafka, registry=registry) as address:
            await client.get(address)
            answer = await client.get(f"{address.split('/?token=')[0]}/api/topics/{topic}/records")
    assert json.loads(answer.json()["records"][0]["value"]["text"]) == {"a": "\ud800"}


async def test_a_port_in_use_is_an_error(kafka: Kafka) -> None:
    async with page_of(kafka) as address:
        port = urlsplit(address).port
        assert port is not None
        async with Admin(kafka.bootstrap_servers) as admin:
            clients = Clients(admin=admin, new_consumer=lambda: Consumer(kafka.bootstrap_servers))
            with pytest.raises(ConfigurationError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
                async with serving(clients, port):
                    pass
