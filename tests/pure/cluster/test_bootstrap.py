"""Parsing bootstrap addresses, and refusing invalid ones with a reason."""

from __future__ import annotations

import pytest

from aiokafka_lite.cluster.bootstrap import Address, parse_bootstrap_servers, shuffled
from aiokafka_lite.errors import ConfigurationError


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2 ,c:3,", [("a", 1), ("b", 2), ("c", 3)]),
        (["a:1", "b:2,c:3"], [("a", 1), ("b", 2), ("c", 3)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]),
        ("10.0.0.1:65535", [("10.0.0.1", 65535)]),
        ("a:1,b:1,a:1", [("a", 1), ("b", 1)]),
    ],
)
def test_addresses_are_read(servers: str | list[str], expected: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap_servers(servers)) == expected


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ("localhost", "port is missing"),
        ("localhost:", "port is missing"),
        ("[::1]", "port is missing"),
        ("localhost:http", "'http' is not a number"),
        ("localhost:٣", "is not a number"),
        ("localhost:0", "from 1 to 65535"),
        ("localhost:65536", "from 1 to 65535"),
        (":9092", "host is missing"),
        ("::1:9092", "must be in brackets"),
        ("[::1:9092", "not closed"),
        ("[host]:9092", "only an IPv6"),
        ("kafka://host:9092", "as in 'host:9092'"),
        ("PLAINTEXT://host:9092", "remove PLAINTEXT://"),
        ("host:9092/path", "characters"),
        ("a:9092;b:9092", "separated by commas, not by semicolons"),
        ("alice:secret@host:9092", "'…@host:9092': an address has no user and password"),
        ("kafka://alice:secret@host:9092", "'…@host:9092': an address has no user and password"),
        ("two hosts:9092", "characters"),
        ("", "must name a server"),
        (" , ", "must name a server"),
        ([], "must name a server"),
    ],
)
def test_invalid_addresses_are_refused_with_a_reason(servers: str | list[str], reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_bootstrap_servers(servers)
    assert reason in str(caught.value)
    assert "bootstrap_servers" in str(caught.value)
    assert "host:port" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_address_reads_as_it_was_written() -> None:
    assert [str(address) for address in parse_bootstrap_servers("[::1]:9,a:1")] == ["[::1]:9", "a:1"]


def test_order_is_drawn_from_the_random_source() -> None:
    numbers = iter([0.9, 0.1, 0.5])
    addresses = [Address("a", 1), Address("b", 1), Address("c", 1)]
    assert [address.host for address in shuffled(addresses, lambda: next(numbers))] == ["b", "c", "a"]
