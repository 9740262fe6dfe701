"""Other clients that log in and write: librdkafka, kafka-python and aiokafka, with the settings of ours."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.waiting import DEADLINE


async def write_by(client: str, settings: dict[str, Any], topic: str, seconds: float = 0.0) -> int:
    """Write records with another client for a time, one at least, and return their number. Each is acknowledged."""
    if client == "aiokafka":
        return await _write_by_aiokafka(settings, topic, seconds)
    write = _write_by_librdkafka if client == "librdkafka" else _write_by_kafka_python
    return await asyncio.to_thread(write, settings, topic, seconds)


def _write_by_librdkafka(settings: dict[str, Any], topic: str, seconds: float) -> int:
    from confluent_kafka import KafkaException, Producer

    names = {"ssl_cafile": "ssl.ca.location", "ssl_certfile": "ssl.certificate.location"}
    properties = {names.get(name, name.replace("_", ".")): value for name, value in settings.items()}
    if "ssl_certfile" in settings:
        properties["ssl.key.location"] = settings["ssl_certfile"]
    if (provider := properties.pop("sasl.oauth.token.provider", None)) is not None:
        properties["oauth_cb"] = lambda _: (provider(), time.time() + 60.0)
    failures: list[Any] = []
    producer = Producer({**properties, "log_level": 0, "error_cb": failures.append, "message.timeout.ms": 30_000})
    written, end = 0, time.monotonic() + seconds
    while written == 0 or time.monotonic() < end:
        producer.produce(topic, b"value", on_delivery=lambda error, _: failures.append(error) if error else None)
        while len(producer):
            producer.poll(0.05)
            if fatal := [failure for failure in failures if failure.name() in ("_AUTHENTICATION", "_SSL")]:
                producer.purge()
                raise KafkaException(fatal[0])
        written += 1
        time.sleep(0.02)
    assert failures == []
    return written


def _write_by_kafka_python(settings: dict[str, Any], topic: str, seconds: float) -> int:
    kafka = pytest.importorskip("kafka")

    class Provider(pytest.importorskip("kafka.net.sasl.oauth").AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return str(settings["sasl_oauth_token_provider"]())

    producer = kafka.KafkaProducer(**_for_python_clients(settings, Provider()), max_block_ms=15_000)
    try:
        written, end = 0, time.monotonic() + seconds
        while written == 0 or time.monotonic() < end:
            producer.send(topic, b"value").get(DEADLINE)
            written += 1
            time.sleep(0.02)
        return written
    finally:
        producer.close(5)


async def _write_by_aiokafka(settings: dict[str, Any], topic: str, seconds: float) -> int:
    import aiokafka
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.helpers import create_ssl_context

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return str(settings["sasl_oauth_token_provider"]())

    client_settings = _for_python_clients(settings, Provider())
    files = {
        name.removeprefix("ssl_"): client_settings.pop(name)
        for name in ("ssl_cafile", "ssl_certfile")
        if name in client_settings
    }
    if files:
        client_settings["ssl_context"] = create_ssl_context(**files)
    producer = aiokafka.AIOKafkaProducer(**client_settings)
    try:
        await producer.start()
        written, end = 0, time.monotonic() + seconds
        while written == 0 or time.monotonic() < end:
            await producer.send_and_wait(topic, b"value")
            written += 1
            await asyncio.sleep(0.02)
        return written
    finally:
        await producer.stop()


def _for_python_clients(settings: dict[str, Any], provider: Any) -> dict[str, Any]:
    names = {"sasl_username": "sasl_plain_username", "sasl_password": "sasl_plain_password"}
    properties = {names.get(name, name): value for name, value in settings.items()}
    return {
        **properties,
        **({"sasl_oauth_token_provider": provider} if "sasl_oauth_token_provider" in properties else {}),
    }
