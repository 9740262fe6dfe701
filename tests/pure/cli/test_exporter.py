"""The address at which the exporter listens."""

from __future__ import annotations

import re
import socket
from urllib.request import urlopen

import pytest

pytest.importorskip("typer")

from aiokafka_lite.admin import Admin
from aiokafka_lite.cli.exporter import address_of, serving
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.metrics.cluster import ClusterWatch
from tests.waiting import DEADLINE


@pytest.mark.parametrize("text", ["127.0.0.1:\u00b2", "127.0.0.1:\u0663", "127.0.0.1:", ":1", "127.0.0.1:65536"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="listen must be HOST:PORT"):
        address_of(text)


def test_an_address_has_a_host_and_a_port() -> None:
    assert address_of("[::1]:9308") == ("::1", 9308)


def watch() -> ClusterWatch:
    return ClusterWatch(Admin("127.0.0.1:1"), groups=re.compile(".*"), topics=re.compile(".*"))


def test_the_address_of_the_page_can_be_opened_with_ipv6() -> None:
    pytest.importorskip("prometheus_client")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving(watch(), "::1", 0) as address, urlopen(f"http://{address}/metrics", timeout=DEADLINE) as page:
        assert address.startswith("[::1]:")
        assert b"kafka_exporter_up" in page.read()


def test_a_host_that_cannot_be_a_name_is_refused() -> None:
    pytest.importorskip("prometheus_client")
    match = "listen must be HOST:PORT with the name of a host, got"
    with pytest.raises(ConfigurationError, match=match), serving(watch(), "a..b", 0):
        pass
