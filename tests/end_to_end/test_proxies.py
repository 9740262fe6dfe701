"""Brokers behind a real proxy: pproxy in a process of its own, for SOCKS5 and for HTTP CONNECT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import AuthenticationError
from tests.end_to_end.secured_kafka import Secured, only_on_the_newest, over_tls, tls
from tests.real.proxies import pproxy


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of pproxy."""
    with pproxy() as port:
        yield port


@only_on_the_newest
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
@pytest.mark.parametrize("scheme", ["socks5", "http"])
async def test_a_client_writes_and_reads_through_a_proxy(
    secured: Secured, scheme: str, protocol: str, port: int
) -> None:
    listeners: dict[str, dict[str, Any]] = {
        "PLAINTEXT": {"bootstrap_servers": secured.bootstrap_servers},
        "SSL": tls(secured),
        "SASL_SSL": over_tls(secured),
    }
    settings = listeners[protocol] | {"proxy": f"{scheme}://127.0.0.1:{port}"}
    topic = f"through-{scheme}-{protocol}"
    values = [b"%d" % number * 100 for number in range(1000)]
    async with Producer(**settings) as producer:
        await producer.send_many(topic, values)
    async with Consumer(topics=[topic], group_id=topic, **settings) as consumer:
        assert [(await anext(consumer)).value for _ in values] == values


@only_on_the_newest
async def test_the_broker_is_authenticated_through_a_proxy(secured: Secured, port: int) -> None:
    settings = tls(secured) | {"ssl_cafile": secured.certificates.stranger, "proxy": f"http://127.0.0.1:{port}"}
    with pytest.raises(AuthenticationError, match=r"the certificate of localhost:\d+ cannot be trusted"):
        await Admin(**settings).start()


@only_on_the_newest
@pytest.mark.parametrize("scheme", ["socks5", "http"])
async def test_a_proxy_that_requires_a_login_refuses_a_wrong_password(secured: Secured, scheme: str) -> None:
    with pproxy("carol:password") as port:
        if scheme == "http":  # pproxy closes a connection by SOCKS without saying why
            with pytest.raises(AuthenticationError, match=f"the proxy http://127.0.0.1:{port} refuses the login"):
                await Admin(secured.bootstrap_servers, proxy=f"http://carol:wrong@127.0.0.1:{port}").start()
        async with Admin(secured.bootstrap_servers, proxy=f"{scheme}://carol:password@127.0.0.1:{port}") as admin:
            assert await admin.topics.list() is not None
