"""The address at which the exporter listens."""

from __future__ import annotations

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli.exporter import address_of
from aiokafka_lite.errors import ConfigurationError


@pytest.mark.parametrize("text", ["127.0.0.1:\u00b2", "127.0.0.1:\u0663", "127.0.0.1:", ":1", "127.0.0.1:65536"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="listen must be HOST:PORT"):
        address_of(text)


def test_an_address_has_a_host_and_a_port() -> None:
    assert address_of("[::1]:9308") == ("::1", 9308)
