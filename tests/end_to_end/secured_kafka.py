"""The secured brokers of the end-to-end tests: a real Kafka and the embedded one, with a port for each way to connect.

A test that takes ``secured`` runs on each broker; with ``way`` too, in each way to connect.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.real.jvm import java_problem
from tests.real.releases import MATRIX, NEWEST, marks_of, needed, release, since, wanted
from tests.real.secured_broker import USERS, EmbeddedSecured, SecuredKafka

PEM_IS_READ = "3.0"
"""The first release that reads a key without a password from PEM. Older releases have no TLS here."""

WAYS = {
    "PLAIN": "1.0",
    "SCRAM-SHA-256": "1.0",
    "SCRAM-SHA-512": "1.0",
    "OAUTHBEARER": "2.0",
    "TLS": PEM_IS_READ,
    "TLS with a ready context": PEM_IS_READ,
    "mutual TLS": PEM_IS_READ,
    "mutual TLS with an encrypted key": PEM_IS_READ,
    "SCRAM over TLS": PEM_IS_READ,
}
"""The ways to connect to a broker, and the first release with each way."""

with_oauth = since("2.0", "brokers have OAUTHBEARER since Kafka 2.0")
with_tls = since(PEM_IS_READ, "brokers read PEM since Kafka 3.0")
only_on_the_newest = since(NEWEST, "what depends on our side alone, or takes long, is shown once")

Secured = SecuredKafka | EmbeddedSecured

Test = TypeVar("Test", bound=Callable[..., Any])


def only_on_apache_kafka(test: Test) -> Test:
    """Do not repeat the test on the embedded broker: it starts many processes."""
    test.__dict__["only_on_apache_kafka"] = True
    return test


def parametrize_secured(metafunc: pytest.Metafunc) -> None:
    """Run the test on the brokers of this run, and in each way to connect if it takes ``way``."""
    option = metafunc.config.getoption("--kafka")
    if "way" in metafunc.fixturenames:
        pairs = [(version, way) for way, first in WAYS.items() for version in having(option, first)]
        parameters = [pytest.param(f"secured {version}", way, marks=marks_of(version)) for version, way in pairs]
        metafunc.parametrize("secured, way", parameters, indirect=["secured"], scope="module")
        return
    first, _ = needed(metafunc)
    versions = having(option, first)
    if metafunc.function.__dict__.get("only_on_apache_kafka") and "embedded" in versions:
        versions.remove("embedded")
    parameters = [pytest.param(f"secured {version}", marks=marks_of(version)) for version in versions]
    metafunc.parametrize("secured", parameters, indirect=True, scope="module")


def having(option: str, first: str) -> list[str]:
    """Return the embedded broker, and the releases of this run that are not older than ``first``."""
    names = [name for name in wanted(option, first) if name in MATRIX or name == "embedded"]
    return [name for name in names if name == "embedded" or release(name) >= release(first)]


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with a port for each way; one at a time, shared by the tests."""
    directory = tmp_path_factory.mktemp("certificates")
    version = request.param.removeprefix("secured ")
    if version != "embedded" and (problem := java_problem()) is not None:
        from tests.end_to_end.conftest import missing  # which imports this module

        missing(f"a secured Kafka is run as a plain Java process: {problem}")
    kafka = EmbeddedSecured(directory) if version == "embedded" else SecuredKafka(version, directory)
    kafka.start()
    yield kafka
    kafka.stop()
    shutil.rmtree(directory)


def sasl(kafka: Secured, mechanism: str, username: str, password: str, port: str = "SASL") -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.servers(port),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": username,
        "sasl_password": password,
    }


def tls(kafka: Secured, port: str = "TLS", **settings: Any) -> dict[str, Any]:
    trusting = {"security_protocol": "SSL", "ssl_cafile": kafka.certificates.ca}
    return {"bootstrap_servers": kafka.servers(port), **trusting, **settings}


def oauth(kafka: Secured, provider: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.servers("SASL"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def over_tls(kafka: Secured, **settings: Any) -> dict[str, Any]:
    alice = sasl(kafka, "SCRAM-SHA-256", "alice", USERS["alice"])
    return {**alice, **tls(kafka, "SHORT"), "security_protocol": "SASL_SSL", **settings}
